"""What can be seen of a project, by path, with every field that a controller may write."""

import re
from collections.abc import Mapping
from typing import Any

from ccm.model.objects import Json
from tests.labs.openstack.tenant import Tenant
from tests.peers.openstack.nodes import ALL
from tests.peers.openstack.services import CASES
from tests.peers.world import Seen

BALANCER = re.compile(r"kube_service_\S+?_default_(\S+)")
FLOATING_IP = re.compile(r"external service default/(\S+) from")
LISTENER_FIELDS = (
    "name",
    "protocol",
    "connection_limit",
    "timeout_client_data",
    "timeout_member_connect",
    "timeout_member_data",
    "timeout_tcp_inspect",
    "insert_headers",
    "default_tls_container_ref",
)
POOL_FIELDS = ("name", "protocol", "lb_algorithm", "session_persistence")
MONITOR_FIELDS = (
    *("name", "type", "delay", "timeout", "max_retries", "max_retries_down"),
    *("url_path", "http_method", "expected_codes"),
)


class Project:
    """All that there is in it, read once."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self.balancers = tenant.get("octavia", "/lbaas/loadbalancers")
        self.listeners = tenant.get("octavia", "/lbaas/listeners")
        self.pools = {one["id"]: one for one in tenant.get("octavia", "/lbaas/pools")}
        monitors = tenant.get("octavia", "/lbaas/healthmonitors")
        self.monitors = {one["id"]: one for one in monitors}
        self.floating_ips = tenant.get("neutron", "/floatingips")
        self.groups = tenant.get("neutron", "/security-groups")
        self.ports = tenant.get("neutron", "/ports")
        self.address_groups = tenant.get("neutron", "/address-groups")

    @property
    def _servers(self) -> dict[str, str]:
        """By port."""
        return {
            one["id"]: one["device_id"]
            for one in self.ports
            if one["device_owner"].startswith("compute:")
        }

    @property
    def _in_use(self) -> set[str]:
        """The ports of servers and load balancers; others are what the lab forgets."""
        return {*self._servers, *(one["vip_port_id"] for one in self.balancers)}

    def roles(self) -> dict[str, str]:
        """What to call IDs and addresses that differ from run to run."""
        found = {one["id"]: one["name"] for one in self.groups}
        vips: dict[str, str] = {}
        for one in self.balancers:
            match = BALANCER.fullmatch(one["name"])
            role = f"lb-of-{match[1]}" if match else one["name"]
            found |= {one["id"]: role, one["name"]: role}
            vips[one["vip_port_id"]] = role
            more = [each["ip_address"] for each in one["additional_vips"]]
            for address in (one["vip_address"], *more):
                found[address] = f"address-of-{role}"
        for one in self.listeners:
            found[one["id"]] = "listener-" + _port_of(one)
        for one in self.floating_ips:
            said = FLOATING_IP.search(one["description"])
            made_for = f"lb-of-{said[1]}" if said else ""
            role = vips.get(one["port_id"]) or made_for or self._servers.get(one["port_id"])
            if role:
                found[one["floating_ip_address"]] = found[one["id"]] = f"floating-of-{role}"
        for one in self.pools.values():
            found[one["id"]] = one["name"]
        return found | vips | {port: f"port-of-{one}" for port, one in self._servers.items()}

    def seen(self, shapes: Mapping[str, str], router: str) -> Seen:
        """`shapes` of nodes by the ID of their server."""
        for route in self._tenant.get("neutron", f"/routers/{router}")["routes"]:
            number = int(route["destination"].split(".")[2])
            yield f"route {[*ALL][number]}", route["nexthop"]
        for port in self.ports:
            if shape := shapes.get(port["device_id"]):
                at = f"node {shape} port {port['fixed_ips'][0]['ip_address']}"
                yield f"{at} groups", set(port["security_groups"])
                yield f"{at} pairs", {one["ip_address"] for one in port["allowed_address_pairs"]}
        for one in self.address_groups:
            yield f"address-group {one['name']}", set(one["addresses"])
        for one in self.balancers:
            yield from self._balancer(one)
        for one in self.floating_ips:
            at = f"floating {one['floating_ip_address']}"
            yield f"{at} of", one["port_id"] if one["port_id"] in self._in_use else None
            yield f"{at} description", one["description"]
        for one in self.groups:
            yield from _group(one)

    def _balancer(self, one: Json) -> Seen:
        at = f"balancer {one['name']}"
        for key in ("description", "provider", "flavor_id", "availability_zone"):
            yield f"{at} {key}", one[key]
        yield f"{at} state", one["provisioning_status"]
        yield f"{at} tags", set(one["tags"])
        subnets = [each["subnet_id"] for each in one["additional_vips"]]
        yield f"{at} subnets", [one["vip_subnet_id"], *subnets]
        for listener in self.listeners:
            if {"id": one["id"]} in listener["loadbalancers"]:
                yield from self._listener(f"{at} listener {_port_of(listener)}", listener)

    def _listener(self, at: str, one: Json) -> Seen:
        for key in LISTENER_FIELDS:
            yield f"{at} {key}", one[key]
        yield f"{at} tags", set(one["tags"])
        yield f"{at} allowed_cidrs", set(one["allowed_cidrs"] or ())
        pool = self.pools.get(one["default_pool_id"])
        if pool is None:
            return
        for key in POOL_FIELDS:
            yield f"{at} pool {key}", pool[key]
        for member in self._tenant.get("octavia", f"/lbaas/pools/{pool['id']}/members"):
            yield f"{at} member {member['name']}", _member(member)
        if monitor := self.monitors.get(pool.get("healthmonitor_id")):
            for key in MONITOR_FIELDS:
                yield f"{at} monitor {key}", monitor[key]


def _port_of(listener: Json) -> str:
    protocol = listener["protocol"]
    return f"{listener['protocol_port']}/{protocol if protocol in ('UDP', 'SCTP') else 'TCP'}"


def _member(one: Json) -> dict[str, Any]:
    ports = {
        key: CASES.of_node_port(one[key]) for key in ("protocol_port", "monitor_port") if one[key]
    }
    return {key: one[key] for key in ("address", "subnet_id", "weight", "backup")} | ports


def _group(one: Json) -> Seen:
    at = f"group {one['name']}"
    yield f"{at} description", one["description"]
    for rule in one["security_group_rules"]:
        first, last = rule["port_range_min"], rule["port_range_max"]
        port = CASES.of_node_port(first) if first and first == last else f"{first}-{last}"
        peer = rule["remote_ip_prefix"] or rule["remote_group_id"] or "all"
        words = rule["direction"], rule["ethertype"], rule["protocol"], port
        yield f"{at} rule {' '.join(map(str, words))} {peer}", rule["description"]
