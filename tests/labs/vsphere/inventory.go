package main

import (
	"context"
	"fmt"
	"net/url"
	"sort"
	"sync"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/types"
)

type lab struct {
	model *simulator.Model
	url   *url.URL

	mu    sync.Mutex
	http  []*httpFault
	calls map[string]int
	made  int
}

func newLab(model *simulator.Model, inner *url.URL) *lab {
	return &lab{model: model, url: inner, calls: map[string]int{}}
}

func (l *lab) vms() []*simulator.VirtualMachine {
	var all []*simulator.VirtualMachine
	for _, e := range l.model.Map().All("VirtualMachine") {
		all = append(all, e.(*simulator.VirtualMachine))
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

func (l *lab) vm(name string) *simulator.VirtualMachine {
	for _, vm := range l.vms() {
		if vm.Name == name || vm.Guest.HostName == name {
			return vm
		}
	}
	return nil
}

// dress gives the first `count` VMs a host name (node-0, node-1, …), a UUID and one NIC, and removes the rest.
func (l *lab) dress(count int) error {
	ctx := context.Background()
	client, err := govmomi.NewClient(ctx, l.url, true)
	if err != nil {
		return err
	}
	defer client.Logout(ctx)
	for i, vm := range l.vms() {
		if i >= count {
			if err := destroy(ctx, client.Client, vm.Self); err != nil {
				return err
			}
			continue
		}
		// No group of this UUID reads the same backwards, so a wrong byte order cannot pass unseen.
		id := fmt.Sprintf("42%06x-ab%02x-4c%02x-8000-0000000000%02x", i+1, i%256, i%256, i%256)
		l.set(vm, map[string]any{"config.uuid": id, "summary.config.uuid": id})
		l.setGuest(vm, guest{HostName: fmt.Sprintf("node-%d", i), Tools: "guestToolsRunning", NICs: []nic{
			{Network: "VM Network", Addresses: []string{fmt.Sprintf("10.0.%d.%d", i/200, i%200+10), "fe80::1"}, Device: 4000},
		}})
	}
	return nil
}

type nic struct {
	Network   string   `json:"network"`
	Addresses []string `json:"addresses"`
	Device    int32    `json:"device"` // -1: no virtual card of the VM, as a bridge of a CNI is
}

type guest struct {
	HostName string `json:"hostname"`
	Tools    string `json:"tools"`
	NICs     []nic  `json:"nics"`
}

func (l *lab) setGuest(vm *simulator.VirtualMachine, g guest) {
	var nets []types.GuestNicInfo
	first := ""
	for i, n := range g.NICs {
		nets = append(nets, types.GuestNicInfo{Network: n.Network, IpAddress: n.Addresses, Connected: true,
			DeviceConfigId: n.Device, MacAddress: fmt.Sprintf("00:50:56:00:00:%02x", i)})
		if first == "" && len(n.Addresses) > 0 {
			first = n.Addresses[0]
		}
	}
	l.set(vm, map[string]any{
		"guest.hostName": g.HostName, "summary.guest.hostName": g.HostName,
		"guest.ipAddress": first, "summary.guest.ipAddress": first, "guest.net": nets,
		"guest.toolsRunningStatus": g.Tools, "summary.guest.toolsRunningStatus": g.Tools,
	})
}

func (l *lab) set(object interface {
	Reference() types.ManagedObjectReference
}, values map[string]any) {
	ctx := l.model.Service.Context
	var changes []types.PropertyChange
	for name, value := range values {
		changes = append(changes, types.PropertyChange{Name: name, Op: types.PropertyChangeOpAssign, Val: value})
	}
	ctx.WithLock(object, func() { ctx.Update(object, changes) })
}

// tag makes the categories k8s-region and k8s-zone: a region on each datacenter, a zone on each cluster,
// and a zone of its own on the very first host.
func (l *lab) tag() error {
	ctx := context.Background()
	client, err := govmomi.NewClient(ctx, l.url, true)
	if err != nil {
		return err
	}
	defer client.Logout(ctx)
	session := rest.NewClient(client.Client)
	if err := session.Login(ctx, l.url.User); err != nil {
		return err
	}
	defer session.Logout(ctx)
	manager := tags.NewManager(session)
	categories := map[string]string{}
	for _, name := range []string{"k8s-region", "k8s-zone", "other"} {
		id, err := manager.CreateCategory(ctx, &tags.Category{Name: name, Cardinality: "SINGLE"})
		if err != nil {
			return err
		}
		categories[name] = id
	}
	attach := func(category, tag string, ref types.ManagedObjectReference) error {
		id, err := manager.CreateTag(ctx, &tags.Tag{Name: tag, CategoryID: categories[category]})
		if err != nil {
			return err
		}
		return manager.AttachTag(ctx, id, ref)
	}
	for _, e := range l.model.Map().All("Datacenter") {
		if err := attach("k8s-region", "region-"+e.Entity().Name, e.Reference()); err != nil {
			return err
		}
	}
	for _, e := range l.model.Map().All("ClusterComputeResource") {
		if err := attach("k8s-zone", "zone-"+e.Entity().Name, e.Reference()); err != nil {
			return err
		}
	}
	for _, e := range l.model.Map().All("HostSystem") {
		if e.Entity().Name == "DC0_C0_H0" {
			if err := attach("k8s-zone", "zone-of-one-host", e.Reference()); err != nil {
				return err
			}
		}
	}
	return nil
}

func setOption(model *simulator.Model, key, value string) {
	for _, setting := range model.Map().OptionManager().Setting {
		if option := setting.GetOptionValue(); option.Key == key {
			option.Value = value
			return
		}
	}
	options := model.Map().OptionManager()
	options.Setting = append(options.Setting, &types.OptionValue{Key: key, Value: value})
}
