// One call to Resource Manager.
package main

import (
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

var path = regexp.MustCompile(`(?i)^/subscriptions/([^/]+)(?:/resourceGroups/([^/]+))?(?:/providers/([^/]+)/(.+))?$`)

func (l *lab) arm(method, raw string, q map[string][]string, body obj, ifMatch string, f *fault) (int, any, string, error) {
	m := path.FindStringSubmatch(raw)
	if m == nil {
		return 0, nil, "", no(404, "InvalidResourceType", "the path %s is not one of Resource Manager", raw)
	}
	if !strings.EqualFold(m[1], l.sub) {
		return 0, nil, "", no(404, "SubscriptionNotFound", "The subscription '%s' could not be found.", m[1])
	}
	v := ""
	if a := q["api-version"]; len(a) > 0 {
		v = a[0]
	}
	if !regexp.MustCompile(`^20\d\d-\d\d-\d\d(-preview)?$`).MatchString(v) {
		return 0, nil, "", no(400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	group, space, rest := m[2], m[3], m[4]
	if space == "" {
		if group == "" {
			return 200, obj{"id": "/subscriptions/" + l.sub, "subscriptionId": l.sub, "displayName": "lab", "state": "Enabled"}, "", nil
		}
		return l.group(method, group)
	}
	parts := strings.Split(rest, "/")
	if group == "" && low(space) == "microsoft.compute" && low(parts[0]) == "virtualmachines" && len(parts) == 1 {
		r := l.page("", low(space)+"/virtualmachines", raw, q)
		if len(q["statusOnly"]) > 0 {
			for _, vm := range list(r, "value") { // states only, as the name says
				p := props(vm)
				for k := range p {
					if k != "instanceView" && k != "vmId" && k != "provisioningState" {
						delete(p, k)
					}
				}
			}
		}
		return 200, r, "", nil
	}
	if group == "" && len(parts) == 1 && kinds[low(space+"/"+rest)] != nil {
		return 200, l.page("", low(space+"/"+rest), raw, q), "", nil
	}
	if group == "" {
		return 0, nil, "", no(404, "InvalidResourceType", "the lab does not do %s", raw)
	}
	if l.groups[low(group)] == "" {
		return 0, nil, "", no(404, "ResourceGroupNotFound", "Resource group '%s' could not be found.", group)
	}
	// the type is every odd part, the names are the even ones
	types, names, verb := []string{low(space)}, []string{}, ""
	for i, x := range parts {
		if i%2 == 0 {
			types = append(types, low(x))
		} else {
			names = append(names, x)
		}
	}
	kind := strings.Join(types, "/")
	if method == "POST" && len(parts)%2 == 1 {
		verb, kind = types[len(types)-1], strings.Join(types[:len(types)-1], "/")
	}
	if low(parts[0]) == "virtualmachinescalesets" && low(space) == "microsoft.compute" && len(parts) == 6 && low(parts[4]) == "networkinterfaces" {
		kind = "microsoft.compute/virtualmachinescalesets/virtualmachines/networkinterfaces"
	}
	if types[len(types)-1] == "instanceview" && method == "GET" {
		o, ok := l.store[low(strings.TrimSuffix(low(raw), "/instanceview"))]
		if !ok {
			return 0, nil, "", no(404, "ResourceNotFound", "%s", raw)
		}
		return 200, props(o)["instanceView"], "", nil
	}
	t := kinds[kind]
	if t == nil {
		return 0, nil, "", no(404, "InvalidResourceType", "The resource type '%s' is not one this lab has.", kind)
	}
	id := strings.TrimSuffix(raw, "/"+verb)
	if len(names) < len(types)-1 && verb == "" { // a list
		parent := low(raw[:strings.LastIndex(raw, "/")])
		if len(types) > 2 {
			if _, ok := l.store[parent]; !ok {
				return 0, nil, "", no(404, "ParentResourceNotFound", "Can not perform requested operation on nested resource. Parent resource '%s' not found.", names[0])
			}
			if n := inside[types[len(types)-1]]; n != "" {
				return 200, obj{"value": get(l.show(strings.Join(types[:len(types)-1], "/"), l.store[parent], false), "properties", n)}, "", nil
			}
		}
		if kind == "microsoft.compute/virtualmachines" && len(q["$expand"]) > 0 && len(q["$filter"]) == 0 {
			return 0, nil, "", no(400, "InvalidParameter", "$expand=instanceView can only be specified if a valid $filter option is specified.")
		}
		return 200, l.page(low(raw)+"/", kind, raw, q), "", nil
	}
	key := low(id)
	o := l.store[key]
	part := inside[types[len(types)-1]]
	if len(types) > 2 && part != "" {
		return l.nested(method, id, kind, part, t, body, ifMatch, f)
	}
	notFound := no(404, "ResourceNotFound", "The Resource '%s/%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", space, rest, group)
	if b := l.busy[key]; b != nil && method != "GET" {
		if !b.over && time.Now().Before(b.due) {
			return 0, nil, "", no(409, "AnotherOperationInProgress", "Another operation on this or dependent resource is in progress.")
		}
	}
	switch {
	case method == "GET":
		if o == nil {
			return 0, nil, "", notFound
		}
		return 200, l.show(kind, o, strings.Contains(strings.Join(q["$expand"], ""), "nstanceView")), "", nil
	case method == "PUT" || method == "PATCH":
		if method == "PATCH" && o == nil {
			return 0, nil, "", notFound
		}
		if ifMatch != "" && (o == nil || ifMatch != str(o, "etag")) {
			return 0, nil, "", no(412, "PreconditionFailed", "Precondition failed. If-Match does not match the resource.")
		}
		if err := pass(t, body, false); err != nil {
			return 0, nil, "", err
		}
		n := clone(body)
		if method == "PATCH" {
			n = clone(o)
			for k, v := range body {
				if k == "properties" {
					for pk, pv := range v.(obj) {
						props(n)[pk] = pv
					}
				} else {
					n[k] = v
				}
			}
		}
		if o == nil && n["location"] == nil && len(types) == 2 {
			return 0, nil, "", no(400, "LocationRequired", "The location property is required for this definition.")
		}
		n["id"], n["name"], n["type"] = id, names[len(names)-1], strings.Join(append([]string{space}, typeNames(parts)...), "/")
		l.strip(n)
		before := l.store[key]
		if f != nil && f.Async {
			op := l.start(key, f, nil)
			return 201, l.show(kind, n, false), op, nil
		}
		if err := l.born(kind, id, n, before); err != nil {
			return 0, nil, "", err
		}
		if strings.HasPrefix(kind, "microsoft.network") {
			n["etag"] = l.etag()
		}
		if o != nil && o["location"] != nil && n["location"] == nil {
			n["location"] = o["location"]
		}
		l.store[key] = n
		op := l.start(key, nil, func() { props(n)["provisioningState"] = "Succeeded" })
		if op != "" {
			props(n)["provisioningState"] = "Updating"
		}
		if o == nil {
			return 201, l.show(kind, n, false), op, nil
		}
		return 200, l.show(kind, n, false), op, nil
	case method == "DELETE":
		if o == nil {
			return 204, nil, "", nil
		}
		if kind == "microsoft.network/publicipaddresses" {
			if c := str(o, "properties", "ipConfiguration", "id"); c != "" {
				if _, alive := l.find(c); alive {
					return 0, nil, "", no(400, "PublicIPAddressCannotBeDeleted", "Public IP address %s can not be deleted since it is still allocated to resource %s.", id, c)
				}
			}
		}
		if kind == "microsoft.network/networkinterfaces" && get(o, "properties", "virtualMachine") != nil {
			if _, alive := l.find(str(o, "properties", "virtualMachine", "id")); alive {
				return 0, nil, "", no(400, "NicInUse", "Network Interface %s is used by existing resource.", id)
			}
		}
		if kind == "microsoft.network/loadbalancers" {
			for _, b := range list(o, "properties", "backendAddressPools") {
				if len(l.members(str(b, "id"))) > 0 {
					for k := range l.store {
						if strings.Contains(k, "/networkinterfaces/") {
							l.leave(l.store[k], str(b, "id"))
						}
					}
				}
			}
		}
		if f != nil && f.Async {
			return 202, nil, l.start(key, f, nil), nil
		}
		op := l.start(key, nil, func() { delete(l.store, key) })
		if op == "" {
			delete(l.store, key)
			return 200, nil, "", nil
		}
		return 202, nil, op, nil
	case method == "POST" && (kind == "microsoft.compute/virtualmachines" || kind == "microsoft.compute/virtualmachinescalesets/virtualmachines"):
		if o == nil {
			return 0, nil, "", notFound
		}
		state := map[string]string{"poweroff": "stopped", "deallocate": "deallocated", "start": "running", "restart": "running"}[verb]
		if state == "" {
			return 0, nil, "", no(404, "NotFound", "the lab does not do %s", verb)
		}
		l.power(o, state)
		return 200, nil, "", nil
	}
	return 0, nil, "", no(405, "MethodNotAllowed", "%s is not allowed here", method)
}

func typeNames(parts []string) []string {
	out := []string{}
	for i := 0; i < len(parts); i += 2 {
		out = append(out, parts[i])
	}
	return out
}

func (l *lab) leave(nic obj, pool string) {
	for _, c := range list(nic, "properties", "ipConfigurations") {
		keep := []any{}
		for _, p := range list(c, "properties", "loadBalancerBackendAddressPools") {
			if !strings.EqualFold(str(p, "id"), pool) {
				keep = append(keep, p)
			}
		}
		props(c)["loadBalancerBackendAddressPools"] = keep
	}
}

// strip takes out of a body what ARM computes itself.
func (l *lab) strip(o obj) {
	delete(o, "etag")
	for _, n := range []string{"backendAddressPools", "frontendIPConfigurations", "probes"} {
		for _, x := range list(o, "properties", n) {
			delete(props(x), "backendIPConfigurations")
			delete(props(x), "loadBalancingRules")
			delete(x, "etag")
		}
	}
}

func (l *lab) nested(method, id, kind, part string, t reflect.Type, body obj, ifMatch string, f *fault) (int, any, string, error) {
	cut := strings.LastIndex(id, "/")
	parentID, name := id[:strings.LastIndex(id[:cut], "/")], id[cut+1:]
	parent, ok := l.store[low(parentID)]
	if !ok {
		return 0, nil, "", no(404, "ParentResourceNotFound", "Can not perform requested operation on nested resource. Parent resource '%s' not found.", parentID)
	}
	all, _ := props(parent)[part].([]any)
	at := -1
	for i, x := range all {
		if strings.EqualFold(str(x, "name"), name) {
			at = i
		}
	}
	parentKind := kind[:strings.LastIndex(kind, "/")]
	switch method {
	case "GET":
		if at < 0 {
			return 0, nil, "", no(404, "NotFound", "Resource %s not found.", id)
		}
		for _, x := range list(l.show(parentKind, parent, false), "properties", part) {
			if strings.EqualFold(str(x, "name"), name) {
				return 200, x, "", nil
			}
		}
	case "PUT":
		if ifMatch != "" && ifMatch != str(parent, "etag") {
			return 0, nil, "", no(412, "PreconditionFailed", "Precondition failed. If-Match does not match the resource.")
		}
		if err := pass(t, body, false); err != nil {
			return 0, nil, "", err
		}
		n := clone(body)
		n["name"], n["id"] = name, id
		delete(n, "etag")
		delete(props(n), "backendIPConfigurations")
		delete(props(n), "loadBalancingRules")
		next := clone(parent)
		arr, _ := props(next)[part].([]any)
		code := 200
		if at < 0 {
			arr, code = append(arr, n), 201
		} else {
			arr[at] = n
		}
		props(next)[part] = arr
		if f != nil && f.Async {
			return code, n, l.start(low(parentID), f, nil), nil
		}
		if err := l.born(parentKind, parentID, next, parent); err != nil {
			return 0, nil, "", err
		}
		next["etag"] = l.etag()
		l.store[low(parentID)] = next
		o, _ := l.find(id)
		return code, o, l.start(low(parentID), nil, nil), nil
	case "DELETE":
		if at < 0 {
			return 204, nil, "", nil
		}
		if len(l.members(id)) > 0 {
			return 0, nil, "", no(400, "InUseBackendAddressPoolCannotBeDeleted", "Backend pool %s is in use.", id)
		}
		props(parent)[part] = append(append([]any{}, all[:at]...), all[at+1:]...)
		parent["etag"] = l.etag()
		op := l.start(low(parentID), nil, nil)
		if op != "" {
			return 202, nil, op, nil
		}
		return 200, nil, "", nil
	}
	return 0, nil, "", no(405, "MethodNotAllowed", "%s is not allowed here", method)
}

func (l *lab) group(method, name string) (int, any, string, error) {
	switch method {
	case "PUT":
		l.groups[low(name)] = name
	case "GET":
		if l.groups[low(name)] == "" {
			return 0, nil, "", no(404, "ResourceGroupNotFound", "Resource group '%s' could not be found.", name)
		}
	case "DELETE":
		delete(l.groups, low(name))
		for k := range l.store {
			if strings.Contains(k, "/resourcegroups/"+low(name)+"/") {
				delete(l.store, k)
			}
		}
		return 200, nil, "", nil
	}
	return 200, obj{"id": "/subscriptions/" + l.sub + "/resourceGroups/" + l.groups[low(name)], "name": l.groups[low(name)], "location": l.region, "properties": obj{"provisioningState": "Succeeded"}}, "", nil
}

// start says how an asynchronous operation is followed; "" when the lab answers at once.
func (l *lab) start(key string, fail *fault, done func()) string {
	if l.delay == 0 && fail == nil {
		return ""
	}
	l.seq++
	name := fmt.Sprintf("%08x-0000-4000-b000-000000000000", l.seq)
	op := &operation{due: time.Now().Add(l.delay), fail: fail, done: done}
	l.ops[name], l.busy[key] = op, op
	return l.url + "/subscriptions/" + l.sub + "/providers/Microsoft.Network/locations/" + l.region + "/operations/" + name + "?api-version=2025-01-01"
}

func (l *lab) settle() {
	for _, op := range l.ops {
		if !op.over && !time.Now().Before(op.due) {
			op.over = true
			if op.fail == nil && op.done != nil {
				op.done()
			}
		}
	}
}

func (l *lab) page(prefix, kind, raw string, q map[string][]string) obj {
	keys := []string{}
	for k, o := range l.store {
		in := prefix == "" && low(str(o, "type")) == kind || prefix != "" && strings.HasPrefix(k, prefix) && !strings.Contains(k[len(prefix):], "/")
		if set, ok := strings.CutSuffix(prefix, "/networkinterfaces/"); ok && strings.Contains(set, "/virtualmachinescalesets/") {
			in = strings.HasPrefix(k, set+"/virtualmachines/") && strings.Contains(k, "/networkinterfaces/")
		}
		if in {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	skip, size := 0, 100
	if s := q["$skiptoken"]; len(s) > 0 {
		skip, _ = strconv.Atoi(s[0])
	}
	expand := strings.Contains(strings.Join(q["$expand"], "")+strings.Join(q["statusOnly"], ""), "nstanceView") || len(q["statusOnly"]) > 0
	out := []any{}
	for i, k := range keys {
		if i >= skip && i < skip+size {
			out = append(out, l.show(kind, l.store[k], expand))
		}
	}
	r := obj{"value": out}
	if skip+size < len(keys) {
		vals := []string{"api-version=" + q["api-version"][0], fmt.Sprintf("$skiptoken=%d", skip+size)}
		for _, one := range []string{"$expand", "statusOnly"} {
			if len(q[one]) > 0 {
				vals = append(vals, one+"="+q[one][0])
			}
		}
		r["nextLink"] = l.url + raw + "?" + strings.Join(vals, "&")
	}
	return r
}
