"""What the conformance kit sees of OpenStack's records."""

from collections.abc import Mapping
from typing import Any

from ccm.cloud.testkit.adapter import Machine, ObservedBalancer
from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json
from ccm.model.service import HealthCheck


def machine_of(name: str, server: Json) -> Machine:
    """What Nova's record says of a server that has fixed addresses only."""
    addresses = tuple(
        NodeAddress(AddressType.INTERNAL_IP, one["addr"])
        for entries in server["addresses"].values()
        for one in entries
    )
    provider_id = f"openstack:///{server['id']}"
    aliases = f"openstack://RegionOne/{server['id']}", f"openstack:///{server['id'].upper()}"
    return Machine(name, provider_id, "m1.tiny", "zone-a", "RegionOne", addresses, aliases)


def settled(record: Any) -> Any:
    """A record without what Octavia changes by itself."""
    if isinstance(record, list):
        return sorted((settled(one) for one in record), key=str)
    if not isinstance(record, dict):
        return record
    moving = ("provisioning_status", "operating_status", "updated_at", "created_at")
    return {key: settled(value) for key, value in record.items() if key not in moving}


def observed(tree: Json, owners: Mapping[str, str]) -> ObservedBalancer:
    """What the kit wants to know of a balancer; an address without an owner is of no machine."""
    listeners, backends, ranges = set(), set(), set()
    health = None
    affinities = set()
    addresses = [tree["vip_address"], *(one["ip_address"] for one in tree["additional_vips"])]
    for listener in tree["listeners"]:
        pool = listener["pool"]
        members = pool["members"] if pool else []
        node_ports = {member["protocol_port"] for member in members} or {0}
        protocol = listener["protocol"].replace("HTTP", "TCP")
        listeners |= {(protocol, listener["protocol_port"], port) for port in node_ports}
        backends |= {owners[member["address"]] for member in members} - {""}
        ranges |= set(listener.get("allowed_cidrs") or ())
        affinities.add(bool(pool and pool.get("session_persistence")))
        monitor = pool and pool["monitor"]
        if monitor and monitor["type"] == "HTTP":
            ports = {member.get("monitor_port") for member in members} or {32000}
            assert len(ports) == 1, "all members are checked at one port"
            health = HealthCheck(ports.pop(), monitor["url_path"])
    return ObservedBalancer(
        name=tree["name"],
        listeners=frozenset(listeners),
        backends=frozenset(backends),
        source_ranges=frozenset(ranges - {"0.0.0.0/0", "::/0"}),
        health_check=health,
        has_affinity=affinities == {True},
        families=frozenset("IPv6" if ":" in one else "IPv4" for one in addresses),
    )
