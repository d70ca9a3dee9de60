// What Azure checks and computes of each kind of resource.
package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

func stamp(id, kind string, parts obj, names ...string) {
	for _, n := range names {
		for _, x := range list(parts, "properties", n) {
			x["id"] = id + "/" + n + "/" + str(x, "name")
			x["type"] = kind + "/" + n
			if n == "backendAddressPools" || n == "frontendIPConfigurations" || n == "loadBalancingRules" || n == "probes" || n == "securityRules" || n == "routes" || n == "subnets" || n == "ipConfigurations" || n == "inboundNatRules" || n == "outboundRules" {
				props(x)["provisioningState"] = "Succeeded"
			}
			if kind != "Microsoft.Network/networkInterfaces" && kind != "" {
				continue
			}
			delete(x, "type")
		}
	}
}

func (l *lab) born(kind, id string, o, old obj) error {
	p := props(o)
	p["provisioningState"] = "Succeeded"
	switch kind {
	case "microsoft.network/publicipaddresses":
		if p["publicIPAllocationMethod"] == nil {
			p["publicIPAllocationMethod"] = "Dynamic"
		}
		if o["sku"] == nil {
			o["sku"] = obj{"name": "Basic", "tier": "Regional"}
		}
		if str(o, "sku", "name") == "Standard" && p["publicIPAllocationMethod"] != "Static" {
			return no(400, "StandardSkuPublicIPAddressesMustBeStatic", "Standard sku publicIp %s must have AllocationMethod set to Static.", id)
		}
		if old != nil {
			p["ipAddress"] = old["properties"].(obj)["ipAddress"]
			if c := props(old)["ipConfiguration"]; c != nil {
				p["ipConfiguration"] = c
			}
			if str(old, "sku", "name") != str(o, "sku", "name") {
				return no(400, "SkuCannotBeChangedOnUpdate", "Sku cannot be changed for an existing public IP %s.", id)
			}
		} else if p["ipAddress"] == nil {
			p["ipAddress"] = l.public()
			if p["publicIPAddressVersion"] == "IPv6" {
				p["ipAddress"] = fmt.Sprintf("2001:db8::%x", l.ip)
			}
		}
		if p["publicIPAddressVersion"] == nil {
			p["publicIPAddressVersion"] = "IPv4"
		}
		if p["idleTimeoutInMinutes"] == nil {
			p["idleTimeoutInMinutes"] = 4
		}
		if d := str(p, "dnsSettings", "domainNameLabel"); d != "" {
			if !regexp.MustCompile(`^[a-z][a-z0-9-]{1,61}[a-z0-9]$`).MatchString(d) {
				return no(400, "InvalidDomainNameLabel", "The domain name label %s is invalid. It must conform to the following regular expression: ^[a-z][a-z0-9-]{1,61}[a-z0-9]$.", d)
			}
			for k, other := range l.store {
				if k != low(id) && strings.Contains(k, "/publicipaddresses/") && str(other, "properties", "dnsSettings", "domainNameLabel") == d {
					return no(400, "DnsRecordInUse", "DNS record %s.%s.cloudapp.azure.com is already used by another public IP.", d, l.region)
				}
			}
			p["dnsSettings"].(obj)["fqdn"] = d + "." + l.region + ".cloudapp.azure.com"
		}
	case "microsoft.network/virtualnetworks":
		stamp(id, "Microsoft.Network/virtualNetworks", o, "subnets")
	case "microsoft.network/networksecuritygroups":
		stamp(id, "Microsoft.Network/networkSecurityGroups", o, "securityRules")
		seen := map[string]string{}
		for _, r := range list(o, "properties", "securityRules") {
			n, dir := num(r, "properties", "priority"), str(r, "properties", "direction")
			if n < 100 || n > 4096 {
				return no(400, "SecurityRuleInvalidPriority", "Security rule has invalid Priority. Value provided: %d Allowed range 100-4096.", n)
			}
			k := fmt.Sprintf("%s/%d", dir, n)
			if other := seen[k]; other != "" {
				return no(400, "SecurityRuleConflict", "Security rule %s conflicts with rule %s. Rules cannot have the same Priority and Direction.", str(r, "name"), other)
			}
			seen[k] = str(r, "name")
			for _, f := range []string{"sourceAddressPrefix", "destinationAddressPrefix"} {
				if s := str(r, "properties", f); s != "" && s != "*" && !regexp.MustCompile(`^[A-Z][A-Za-z0-9.]*$`).MatchString(s) && !cidr(s) {
					return no(400, "SecurityRuleInvalidAddressPrefix", "Security rule has invalid Address prefix. Value provided: %s", s)
				}
				if v, _ := get(r, "properties", f+"es").([]any); len(v) > 0 {
					for _, x := range v {
						if s, _ := x.(string); s == "*" || (!cidr(s) && !regexp.MustCompile(`^[A-Z][A-Za-z0-9.]*$`).MatchString(s)) {
							return no(400, "SecurityRuleInvalidAddressPrefix", "Security rule has invalid Address prefix. Value provided: %s", s)
						}
					}
				}
			}
		}
	case "microsoft.network/routetables":
		stamp(id, "Microsoft.Network/routeTables", o, "routes")
		seen := map[string]string{}
		for _, r := range list(o, "properties", "routes") {
			a := str(r, "properties", "addressPrefix")
			if !cidr(a) {
				return no(400, "InvalidAddressPrefixFormat", "Address prefix %s of resource %s is not formatted correctly.", a, str(r, "id"))
			}
			if seen[a] != "" {
				return no(400, "RouteConflict", "Route %s conflicts with route %s. Routes cannot have the same AddressPrefix.", str(r, "name"), seen[a])
			}
			seen[a] = str(r, "name")
		}
	case "microsoft.network/networkinterfaces":
		if old != nil && old["properties"].(obj)["virtualMachine"] != nil {
			p["virtualMachine"] = old["properties"].(obj)["virtualMachine"]
		}
		for i, c := range list(o, "properties", "ipConfigurations") {
			c["id"] = id + "/ipConfigurations/" + str(c, "name")
			cp := props(c)
			cp["provisioningState"] = "Succeeded"
			if cp["primary"] == nil {
				cp["primary"] = i == 0
			}
			if cp["privateIPAddressVersion"] == nil {
				cp["privateIPAddressVersion"] = "IPv4"
			}
			if cp["privateIPAddress"] == nil {
				cp["privateIPAddress"] = l.private()
				if old != nil {
					for _, oc := range list(old, "properties", "ipConfigurations") {
						if str(oc, "name") == str(c, "name") {
							cp["privateIPAddress"] = oc["properties"].(obj)["privateIPAddress"]
						}
					}
				}
			}
			if cp["privateIPAllocationMethod"] == nil {
				cp["privateIPAllocationMethod"] = "Dynamic"
			}
			public, internal := map[string]bool{}, map[string]bool{}
			for _, pool := range list(c, "properties", "loadBalancerBackendAddressPools") {
				if _, err := l.must(str(pool, "id"), "InvalidResourceReference", id); err != nil {
					return err
				}
				lbID := low(str(pool, "id"))[:strings.Index(low(str(pool, "id")), "/backendaddresspools/")]
				lb := l.store[lbID]
				isPublic := false
				for _, f := range list(lb, "properties", "frontendIPConfigurations") {
					isPublic = isPublic || get(f, "properties", "publicIPAddress") != nil
				}
				if isPublic {
					public[lbID] = true
				} else if len(list(lb, "properties", "frontendIPConfigurations")) > 0 {
					internal[lbID] = true
				}
			}
			if len(public) > 1 || len(internal) > 1 {
				return no(400, "NetworkInterfaceUsesMultipleLoadBalancersOfSameType", "Network interface %s uses more than one load balancer of one type.", id)
			}
			if ref := str(c, "properties", "publicIPAddress", "id"); ref != "" {
				pip, err := l.must(ref, "InvalidResourceReference", id)
				if err != nil {
					return err
				}
				props(pip)["ipConfiguration"] = obj{"id": c["id"]}
			}
		}
	case "microsoft.network/loadbalancers":
		if o["sku"] == nil {
			o["sku"] = obj{"name": "Basic", "tier": "Regional"}
		}
		if old != nil && str(old, "sku", "name") != str(o, "sku", "name") {
			return no(400, "LoadBalancerSkuCannotBeChanged", "The SKU of load balancer %s cannot be changed.", id)
		}
		stamp(id, "Microsoft.Network/loadBalancers", o, "frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes", "outboundRules", "inboundNatRules")
		own := map[string]bool{}
		for _, n := range []string{"frontendIPConfigurations", "backendAddressPools", "probes"} {
			names := map[string]bool{}
			for _, x := range list(o, "properties", n) {
				own[low(str(x, "id"))] = true
				if names[low(str(x, "name"))] {
					return no(400, "DuplicateResourceName", "Duplicate resource name %s within resource %s.", str(x, "name"), id)
				}
				names[low(str(x, "name"))] = true
			}
		}
		for _, f := range list(o, "properties", "frontendIPConfigurations") {
			fp := props(f)
			if fp["privateIPAllocationMethod"] == nil {
				fp["privateIPAllocationMethod"] = "Dynamic"
			}
			if ref := str(f, "properties", "publicIPAddress", "id"); ref != "" {
				pip, err := l.must(ref, "InvalidResourceReference", str(f, "id"))
				if err != nil {
					return err
				}
				if str(pip, "sku", "name") != str(o, "sku", "name") {
					return no(400, "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed", "%s sku load balancer cannot reference %s sku publicIP %s.", str(o, "sku", "name"), str(pip, "sku", "name"), ref)
				}
				if c := str(pip, "properties", "ipConfiguration", "id"); c != "" && !strings.EqualFold(c, str(f, "id")) {
					if _, alive := l.find(c); alive {
						return no(400, "PublicIPAddressInUse", "Resource %s is referencing public IP address %s that is already allocated to resource %s.", str(f, "id"), ref, c)
					}
				}
				defer func() { props(pip)["ipConfiguration"] = obj{"id": f["id"]} }()
			} else if str(f, "properties", "subnet", "id") != "" {
				if _, err := l.must(str(f, "properties", "subnet", "id"), "InvalidResourceReference", str(f, "id")); err != nil {
					return err
				}
				if fp["privateIPAddress"] == nil || fp["privateIPAddress"] == "" {
					fp["privateIPAddress"] = l.private()
					if old != nil {
						for _, of := range list(old, "properties", "frontendIPConfigurations") {
							if str(of, "name") == str(f, "name") {
								fp["privateIPAddress"] = of["properties"].(obj)["privateIPAddress"]
							}
						}
					}
				}
			} else if str(f, "properties", "publicIPPrefix", "id") == "" {
				return no(400, "FrontendIPConfigurationMissingReference", "Frontend %s must refer to a subnet or a public IP.", str(f, "id"))
			}
		}
		type key struct {
			f, proto string
			port     int
		}
		ports, back := map[key]string{}, map[string]string{}
		for _, r := range list(o, "properties", "loadBalancingRules") {
			rp := props(r)
			for _, ref := range []string{str(rp, "frontendIPConfiguration", "id"), str(rp, "backendAddressPool", "id"), str(rp, "probe", "id")} {
				if ref != "" && !own[low(ref)] {
					return no(400, "InvalidResourceReference", "Resource %s referenced by resource %s was not found.", ref, str(r, "id"))
				}
			}
			if ps, _ := rp["backendAddressPools"].([]any); rp["backendAddressPools"] == nil && rp["backendAddressPool"] != nil && len(ps) == 0 {
				rp["backendAddressPools"] = []any{obj{"id": str(rp, "backendAddressPool", "id")}}
			}
			if n := num(rp, "idleTimeoutInMinutes"); rp["idleTimeoutInMinutes"] != nil && (n < 4 || n > 100) {
				return no(400, "LoadBalancingRuleIdleTimeoutIsInvalid", "Idle timeout %d is outside 4-100.", n)
			}
			k := key{low(str(rp, "frontendIPConfiguration", "id")), low(str(rp, "protocol")), num(rp, "frontendPort")}
			if other := ports[k]; other != "" {
				return no(400, "RulesUseSameFrontendPortProtocolAndFrontend", "Rules %s and %s use the same frontend port and protocol.", str(r, "name"), other)
			}
			ports[k] = str(r, "name")
			if rp["enableFloatingIP"] != true {
				b := fmt.Sprint(low(str(rp, "backendAddressPool", "id")), low(str(rp, "protocol")), num(rp, "backendPort"))
				if other := back[b]; other != "" {
					return no(400, "RulesUseSameBackendPortProtocolAndPool", "Load balancing rules %s and %s with floating IP disabled use the same backend port %d and protocol %s, and must not be used with the same backend address pool.", str(r, "name"), other, num(rp, "backendPort"), str(rp, "protocol"))
				}
				back[b] = str(r, "name")
			}
		}
		if old != nil {
			for _, f := range list(old, "properties", "frontendIPConfigurations") {
				if used := str(f, "properties", "publicIPAddress", "id"); used != "" && !refers(o, used) {
					if pip, ok := l.find(str(f, "properties", "publicIPAddress", "id")); ok {
						delete(props(pip), "ipConfiguration")
					}
				}
			}
			for _, b := range list(old, "properties", "backendAddressPools") {
				if !own[low(str(b, "id"))] && len(l.members(str(b, "id"))) > 0 {
					return no(400, "InUseBackendAddressPoolCannotBeDeleted", "Backend pool %s is in use by network interfaces and cannot be deleted.", str(b, "id"))
				}
			}
		}
	case "microsoft.compute/virtualmachines":
		if p["vmId"] == nil {
			l.seq++
			p["vmId"] = fmt.Sprintf("00000000-0000-4000-8000-%012x", l.seq)
		}
		for _, n := range list(o, "properties", "networkProfile", "networkInterfaces") {
			nic, ok := l.find(str(n, "id"))
			if !ok {
				return no(404, "NotFound", "Network interface %s was not found.", str(n, "id"))
			}
			props(nic)["virtualMachine"] = obj{"id": id}
		}
		if old == nil {
			l.power(o, "running")
		} else if v := props(old)["instanceView"]; v != nil {
			p["instanceView"] = v
		}
	case "microsoft.compute/virtualmachinescalesets":
		return l.grow(id, o, old)
	}
	return nil
}

// refers tells whether a load balancer has a frontend with this public address.
func refers(balancer obj, address string) bool {
	for _, f := range list(balancer, "properties", "frontendIPConfigurations") {
		if strings.EqualFold(str(f, "properties", "publicIPAddress", "id"), address) {
			return true
		}
	}
	return false
}

func cidr(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}

func (l *lab) power(vm obj, state string) {
	props(vm)["instanceView"] = obj{"statuses": []any{
		obj{"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded", "time": now()},
		obj{"code": "PowerState/" + state, "level": "Info", "displayStatus": "VM " + state}}}
}
func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.0000000Z") }

// grow makes the machines and interfaces of a uniform scale set.
func (l *lab) grow(id string, o, old obj) error {
	p := props(o)
	if p["uniqueId"] == nil {
		l.seq++
		p["uniqueId"] = fmt.Sprintf("00000000-0000-4000-9000-%012x", l.seq)
	}
	prefix := str(p, "virtualMachineProfile", "osProfile", "computerNamePrefix")
	zones, _ := o["zones"].([]any)
	var subnet any
	for _, c := range list(p, "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations") {
		for _, ip := range list(c, "properties", "ipConfigurations") {
			subnet = get(ip, "properties", "subnet")
		}
	}
	for i := 0; i < num(o, "sku", "capacity"); i++ {
		vmID := fmt.Sprintf("%s/virtualMachines/%d", id, i)
		if l.store[low(vmID)] != nil {
			continue
		}
		host := fmt.Sprintf("%s%06s", prefix, strconv.FormatInt(int64(i), 36))
		nicID := vmID + "/networkInterfaces/nic"
		vm := obj{"id": vmID, "name": fmt.Sprintf("%s_%d", str(o, "name"), i), "instanceId": strconv.Itoa(i), "location": l.region, "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
			"sku": obj{"name": str(o, "sku", "name"), "tier": "Standard"},
			"properties": obj{"provisioningState": "Succeeded", "vmId": fmt.Sprintf("00000000-0000-4000-a000-%012d", i), "osProfile": obj{"computerName": host},
				"networkProfile":              obj{"networkInterfaces": []any{obj{"id": nicID, "properties": obj{"primary": true}}}},
				"networkProfileConfiguration": get(p, "virtualMachineProfile", "networkProfile")}}
		if len(zones) > 0 {
			vm["zones"] = []any{zones[i%len(zones)]}
		}
		l.power(vm, "running")
		l.store[low(vmID)] = vm
		l.store[low(nicID)] = obj{"id": nicID, "name": "nic", "etag": l.etag(), "properties": obj{"provisioningState": "Succeeded", "primary": true, "virtualMachine": obj{"id": vmID},
			"ipConfigurations": []any{obj{"name": "ipconfig", "id": nicID + "/ipConfigurations/ipconfig", "properties": obj{"primary": true, "privateIPAddress": l.private(), "privateIPAllocationMethod": "Dynamic", "privateIPAddressVersion": "IPv4", "provisioningState": "Succeeded"}}}}}
		if subnet != nil {
			props(list(l.store[low(nicID)], "properties", "ipConfigurations")[0])["subnet"] = subnet
		}
	}
	return nil
}

func (l *lab) members(pool string) []any {
	out := []any{}
	keys := []string{}
	for k := range l.store {
		if strings.Contains(k, "/networkinterfaces/") {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		for _, c := range list(l.store[k], "properties", "ipConfigurations") {
			for _, p := range list(c, "properties", "loadBalancerBackendAddressPools") {
				if strings.EqualFold(str(p, "id"), pool) {
					out = append(out, obj{"id": c["id"]})
				}
			}
		}
	}
	return out
}

// show is what an answer says: computed fields added, hidden ones taken out.
func (l *lab) show(kind string, o obj, expand bool) obj {
	c := clone(o)
	p := props(c)
	switch kind {
	case "microsoft.network/loadbalancers":
		for _, b := range list(c, "properties", "backendAddressPools") {
			b["etag"] = c["etag"]
			if m := l.members(str(b, "id")); len(m) > 0 {
				props(b)["backendIPConfigurations"] = m
			}
		}
		for _, r := range list(c, "properties", "loadBalancingRules") {
			for n, ref := range map[string]string{"frontendIPConfigurations": str(r, "properties", "frontendIPConfiguration", "id"), "backendAddressPools": str(r, "properties", "backendAddressPool", "id"), "probes": str(r, "properties", "probe", "id")} {
				for _, x := range list(c, "properties", n) {
					if strings.EqualFold(str(x, "id"), ref) {
						have, _ := props(x)["loadBalancingRules"].([]any)
						props(x)["loadBalancingRules"] = append(have, obj{"id": r["id"]})
					}
				}
			}
		}
	case "microsoft.network/loadbalancers/backendaddresspools":
		if m := l.members(str(c, "id")); len(m) > 0 {
			p["backendIPConfigurations"] = m
		}
	case "microsoft.compute/virtualmachines", "microsoft.compute/virtualmachinescalesets/virtualmachines":
		if !expand {
			delete(p, "instanceView")
		}
		if l.shout {
			c["id"] = regexp.MustCompile(`(?i)(/resourcegroups/)([^/]+)`).ReplaceAllStringFunc(str(c, "id"), func(s string) string { i := strings.LastIndex(s, "/"); return s[:i] + strings.ToUpper(s[i:]) })
		}
	}
	return c
}

// allMembers says which IP configurations are in which pools.
func (l *lab) allMembers() obj {
	out := obj{}
	for _, o := range l.store {
		if low(str(o, "type")) == "microsoft.network/loadbalancers" {
			for _, b := range list(o, "properties", "backendAddressPools") {
				out[low(str(b, "id"))] = l.members(str(b, "id"))
			}
		}
	}
	return out
}
