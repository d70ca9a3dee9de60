// What Microsoft's generated types say of a body.
package main

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
)

// kinds: resource type in lower case -> Microsoft's Go type of its body.
var kinds = map[string]reflect.Type{
	"microsoft.compute/virtualmachines":                                           reflect.TypeFor[armcompute.VirtualMachine](),
	"microsoft.compute/availabilitysets":                                          reflect.TypeFor[armcompute.AvailabilitySet](),
	"microsoft.compute/virtualmachinescalesets":                                   reflect.TypeFor[armcompute.VirtualMachineScaleSet](),
	"microsoft.compute/virtualmachinescalesets/virtualmachines":                   reflect.TypeFor[armcompute.VirtualMachineScaleSetVM](),
	"microsoft.compute/virtualmachinescalesets/virtualmachines/networkinterfaces": reflect.TypeFor[armnetwork.Interface](),
	"microsoft.compute/virtualmachinescalesets/networkinterfaces":                 reflect.TypeFor[armnetwork.Interface](),
	"microsoft.compute/disks":                                                     reflect.TypeFor[armcompute.Disk](),
	"microsoft.network/networkinterfaces":                                         reflect.TypeFor[armnetwork.Interface](),
	"microsoft.network/loadbalancers":                                             reflect.TypeFor[armnetwork.LoadBalancer](),
	"microsoft.network/loadbalancers/backendaddresspools":                         reflect.TypeFor[armnetwork.BackendAddressPool](),
	"microsoft.network/publicipaddresses":                                         reflect.TypeFor[armnetwork.PublicIPAddress](),
	"microsoft.network/publicipprefixes":                                          reflect.TypeFor[armnetwork.PublicIPPrefix](),
	"microsoft.network/networksecuritygroups":                                     reflect.TypeFor[armnetwork.SecurityGroup](),
	"microsoft.network/routetables":                                               reflect.TypeFor[armnetwork.RouteTable](),
	"microsoft.network/routetables/routes":                                        reflect.TypeFor[armnetwork.Route](),
	"microsoft.network/virtualnetworks":                                           reflect.TypeFor[armnetwork.VirtualNetwork](),
	"microsoft.network/virtualnetworks/subnets":                                   reflect.TypeFor[armnetwork.Subnet](),
	"microsoft.network/privatelinkservices":                                       reflect.TypeFor[armnetwork.PrivateLinkService](),
	"microsoft.network/networksecuritygroups/securityrules":                       reflect.TypeFor[armnetwork.SecurityRule](),
}

// children kept inside the parent's properties, as ARM shows them
var inside = map[string]string{"subnets": "subnets", "routes": "routes", "backendaddresspools": "backendAddressPools", "securityrules": "securityRules"}

func pass(t reflect.Type, in obj, answer bool) error {
	raw, _ := json.Marshal(in)
	v := reflect.New(t)
	if err := json.Unmarshal(raw, v.Interface()); err != nil {
		return no(400, "InvalidRequestContent", "the body does not fit %s: %v", t, err)
	}
	back, err := json.Marshal(v.Interface())
	if err != nil {
		return err
	}
	var out any
	_ = json.Unmarshal(back, &out)
	var same any
	_ = json.Unmarshal(raw, &same)
	if lost := missing(same, out, ""); lost != "" {
		return no(400, "InvalidRequestContent", "could not find member '%s' on object of type '%s'", lost, t.Name())
	}
	return nil
}

func missing(a, b any, where string) string {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return where
		}
		for k, v := range x {
			if v == nil {
				continue
			}
			w, ok := y[k]
			if !ok {
				if s, isMap := v.(map[string]any); isMap && len(s) == 0 {
					continue
				}
				return where + "." + k
			}
			if m := missing(v, w, where+"."+k); m != "" {
				return m
			}
		}
	case []any:
		y, _ := b.([]any)
		if len(y) != len(x) {
			return where
		}
		for i := range x {
			if m := missing(x[i], y[i], fmt.Sprintf("%s[%d]", where, i)); m != "" {
				return m
			}
		}
	}
	return ""
}
