package main

import (
	"context"
	"fmt"
	"os"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// create makes VMs that run in the first cluster of DC0, whose guests have these names.
func (l *lab) create(ctx context.Context, names []string) ([]map[string]any, error) {
	client, err := govmomi.NewClient(ctx, l.url, true)
	if err != nil {
		return nil, err
	}
	defer client.Logout(ctx)
	finder := find.NewFinder(client.Client)
	center, err := finder.Datacenter(ctx, "DC0")
	if err != nil {
		return nil, err
	}
	finder.SetDatacenter(center)
	folders, err := center.Folders(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := finder.ResourcePool(ctx, "/DC0/host/DC0_C0/Resources")
	if err != nil {
		return nil, err
	}
	host, err := finder.HostSystem(ctx, "/DC0/host/DC0_C0/DC0_C0_H0")
	if err != nil {
		return nil, err
	}
	var made []map[string]any
	for _, name := range names {
		spec := types.VirtualMachineConfigSpec{Name: name, GuestId: "otherGuest", NumCPUs: 4, MemoryMB: 8192,
			Files: &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"}}
		task, err := folders.VmFolder.CreateVM(ctx, spec, pool, host)
		if err != nil {
			return nil, err
		}
		info, err := task.WaitForResult(ctx)
		if err != nil {
			return nil, err
		}
		reference := info.Result.(types.ManagedObjectReference)
		on, err := object.NewVirtualMachine(client.Client, reference).PowerOn(ctx)
		if err != nil {
			return nil, err
		}
		if err := on.Wait(ctx); err != nil {
			return nil, err
		}
		made = append(made, l.dressNew(l.model.Map().Get(reference).(*simulator.VirtualMachine), name))
	}
	return made, nil
}

// dressNew gives it a UUID that no machine here or in a server beside this one had before, and a new address.
func (l *lab) dressNew(vm *simulator.VirtualMachine, name string) map[string]any {
	l.mu.Lock()
	l.made++
	number := l.made
	l.mu.Unlock()
	id := fmt.Sprintf("43%06x-ab%02x-4c%02x-8000-%08x%04x", number, number%256, number%256, os.Getpid(), number%65536)
	address := fmt.Sprintf("10.1.%d.%d", number/200%256, number%200+10)
	l.set(vm, map[string]any{"config.uuid": id, "summary.config.uuid": id})
	l.setGuest(vm, guest{HostName: name, Tools: "guestToolsRunning", NICs: []nic{
		{Network: "VM Network", Addresses: []string{address, "fe80::1"}, Device: 4000},
	}})
	return map[string]any{"name": name, "uuid": id, "address": address, "moref": vm.Self.Value}
}

func (l *lab) destroyAll(ctx context.Context) error {
	client, err := govmomi.NewClient(ctx, l.url, true)
	if err != nil {
		return err
	}
	defer client.Logout(ctx)
	for _, vm := range l.vms() {
		if err := destroy(ctx, client.Client, vm.Self); err != nil {
			return err
		}
	}
	return nil
}
