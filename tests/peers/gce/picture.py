"""What can be seen of a project, by path, with every field that a controller may write."""

from typing import Any

from ccm.model.objects import Json
from tests.labs.gce.cloud import Cloud
from tests.peers.gce.services import CASES
from tests.peers.world import Seen

KINDS = {
    "forwardingRules": "rule",
    "targetPools": "pool",
    "addresses": "address",
    "firewalls": "firewall",
    "httpHealthChecks": "http-check",
    "healthChecks": "check",
    "backendServices": "backend",
    "instanceGroups": "group",
    "routes": "route",
}
"""By collection, how paths begin."""
UNSEEN = (
    *("kind", "id", "name", "selfLink", "creationTimestamp", "fingerprint", "labelFingerprint"),
    *("region", "zone", "allowed", "size", "status", "users"),
)
SETS = ("instances", "healthChecks", "sourceRanges", "destinationRanges", "targetTags", "backends")


def seen(cloud: Cloud) -> Seen:
    for path, one in [*cloud.objects.items()]:
        collection = path.split("/")[-2]
        if collection not in KINDS:
            continue
        at = f"{KINDS[collection]} {one['name']}"
        if collection == "instanceGroups":
            at = f"group {one['name']}/{path.split('/')[3]}"
            members = cloud.members.get(path, {})
            yield f"{at} members", {member.rpartition("/")[2] for member in members}
        for key, value in one.items():
            if key not in UNSEEN:
                yield f"{at} {key}", _plain(cloud, key, value)
        for allowed in one.get("allowed", ()):
            for number in _ports(allowed):
                yield f"{at} port {allowed['IPProtocol']}/{number}", True


def _plain(cloud: Cloud, key: str, value: Any) -> Any:
    """A field without what two forms of one thing differ in: URLs, and the order of sets."""
    if key in SETS:
        return {_plain(cloud, "", one) for one in value}
    if isinstance(value, dict):
        return cloud.path(value["group"]) if "group" in value else _of_cases(value)
    if isinstance(value, str) and ("/projects/" in value or value.startswith("projects/")):
        return cloud.path(value)
    return _of_cases({key: value})[key]


def _of_cases(fields: Json) -> Json:
    """With node ports by their Service."""
    return {key: CASES.of_node_port(one) if key == "port" else one for key, one in fields.items()}


def _ports(allowed: Json) -> list[str]:
    found = list[str]()
    for one in allowed.get("ports", ()):
        first, _, last = one.partition("-")
        found += [CASES.of_node_port(port) for port in range(int(first), int(last or first) + 1)]
    return found


def roles(cloud: Cloud) -> dict[str, str]:
    """What to call addresses, which depend on who came first."""
    found = dict[str, str]()
    for kind in ("addresses", "forwardingRules"):
        for name, one in cloud.named(kind).items():
            ip = one.get("address") or one.get("IPAddress")
            if ip:
                found.setdefault(ip, f"address-of-{name}")
    return found
