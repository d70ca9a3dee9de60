"""What can be seen of a lab, by path, with every field that a controller may write."""

from collections.abc import Iterator
from typing import Any

from ccm.model.objects import Json
from tests.labs.azure.lab import NSG, TABLE, Lab
from tests.peers.cases import Cases
from tests.peers.world import Seen

PARTS = {
    "frontendIPConfigurations": "frontend",
    "loadBalancingRules": "rule",
    "probes": "probe",
    "backendAddressPools": "pool",
}
"""Of a load balancer, and how paths begin."""
UNSEEN = (
    *("id", "name", "type", "etag", "provisioningState", "loadBalancingRules", "resourceGuid"),
    *("backendIPConfigurations", "ipConfiguration", "inboundNatRules", "outboundRules", "fqdn"),
    *(
        "backendAddressPools",
        "loadBalancerBackendAddresses",
        "priority",
    ),  # which depends on who comes first
)
SETS = (
    *("sourceAddressPrefixes", "destinationAddressPrefixes", "destinationPortRanges", "zones"),
    *("destinationAddressPrefix",),
)
NODE_PORTS = "port", "backendPort"
LAST = 4000  # priorities from here on are the last ones


def seen(lab: Lab, cases: Cases) -> Seen:
    state = lab.state()
    for key, one in sorted(state["objects"].items()):
        kind = key.split("/")[-2]
        if kind == "loadbalancers":
            yield from _balancer(one, state["members"], cases)
        if kind == "publicipaddresses":
            yield from _fields(f"address {one['name']}", one, cases)
    for one in lab.get("networkSecurityGroups", NSG)["properties"].get("securityRules", ()):
        at = f"security {one['name']}"
        yield from _fields(at, one, cases)
        yield f"{at} is last", one["properties"]["priority"] > LAST
    for one in lab.get("routeTables", TABLE)["properties"].get("routes", ()):
        yield from _fields(f"route {one['name']}", one, cases)


def _balancer(one: Json, members: Json, cases: Cases) -> Seen:
    at, own = f"balancer {one['name']}", ("sku", "tags", "location")
    yield from _fields(at, {key: one[key] for key in own if key in one}, cases)
    for kind, word in PARTS.items():
        for part in one["properties"].get(kind, ()):
            where = f"{word} {one['name']}/{part['name']}"
            yield f"{where} is", "there"
            yield from _fields(where, part, cases)
            if word == "pool":
                listed = part["properties"].get("loadBalancerBackendAddresses", ())
                yield f"{where} names", {each["name"] for each in listed}
                yield f"{where} addresses", {each["properties"]["ipAddress"] for each in listed}
                joined = (each["id"].split("/") for each in members.get(part["id"].lower(), ()))
                yield (
                    f"{where} members",
                    {words[words.index("ipConfigurations") - 1] for words in joined},
                )


def _fields(at: str, record: Json, cases: Cases) -> Seen:
    for key, value in _flat(record, cases):
        words = key.split(".")
        if not {*words} & {*UNSEEN}:
            yield f"{at} {key}", value


def _flat(record: Json, cases: Cases, at: str = "") -> Iterator[tuple[str, Any]]:
    """Each field by its path; a reference is the last part of the ID it has."""
    for key, value in record.items():
        name = f"{at}{key}"
        if isinstance(value, dict) and "id" in value:  # some write all of what they refer to
            yield name, "/".join(value["id"].split("/")[-2:]).lower()
        elif isinstance(value, dict):
            yield from _flat(value, cases, "" if key == "properties" else f"{name}.")
        elif key in SETS:
            yield name.removesuffix("es"), {*value} if isinstance(value, list) else {value}
        elif key in NODE_PORTS and isinstance(value, int):
            yield name, cases.of_node_port(value)
        else:
            yield name, value


def roles(lab: Lab) -> dict[str, str]:
    """What to call addresses, which depend on who came first."""
    found = dict[str, str]()
    for one in lab.objects("publicIPAddresses").values():
        found.setdefault(one["properties"].get("ipAddress", ""), f"address-of-{one['name']}")
    for balancer in lab.objects("loadBalancers").values():
        for one in balancer["properties"].get("frontendIPConfigurations", ()):
            ip = one["properties"].get("privateIPAddress")
            found.setdefault(ip or "", f"address-of-{one['name']}")
    return found
