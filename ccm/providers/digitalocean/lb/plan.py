"""What a load balancer is made of, and what turns one into it; nothing in here acts.

The API takes a load balancer whole. What the Service does not ask for stays as it is in the one
that is there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.errors import Refused
from ccm.model.cloud import read_address
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.model.records import differences
from ccm.providers.digitalocean import ids
from ccm.providers.digitalocean.config import DUALSTACK, IPV4, NETWORK
from ccm.providers.digitalocean.lb.request import (
    EXTERNAL,
    FIXED,
    INTERNAL,
    SIZES,
    LoadBalancerRequest,
)

MAX_NAMED = 5  # Nodes in one sentence
MAX_ADDRESSES = 100  # of a Node that are looked at: its kubelet may write thousands

_RULE = (
    "entry_protocol",
    "entry_port",
    "target_protocol",
    "target_port",
    "certificate_id",
    "tls_passthrough",
)
"""What counts of a forwarding rule."""
DEFAULT_IDLE_TIMEOUT = 60  # seconds, where a record does not say
_KEPT = (
    "name",
    "project_id",
    "size_unit",
    "type",
    "network",
    "network_stack",
    "vpc_uuid",
    "forwarding_rules",
    "health_check",
    "sticky_sessions",
    "redirect_http_to_https",
    "enable_proxy_protocol",
    "enable_backend_keepalive",
    "disable_lets_encrypt_dns_records",
    "http_idle_timeout_seconds",
    "firewall",
    "tls_cipher_policy",
)
"""What of a record goes back to the API with a change of something else."""


@dataclass(frozen=True, slots=True)
class Backends:
    """The droplets that can be behind a load balancer, and Nodes that cannot with the reason."""

    droplet_ids: Sequence[int]  # each once, that of the oldest Node first
    names: tuple[str, ...]
    without_ipv6: Mapping[str, int]  # droplets by Node, as the Nodes say
    left_out: tuple[str, ...]
    why: str = ""

    @property
    def content(self) -> Json:
        return {"droplet_ids": sorted(self.droplet_ids)}

    @property
    def warnings(self) -> list[str]:
        return [f"{named(self.left_out)} left out: {self.why}"] if self.left_out else []


def backends(kind: str, network: str, nodes: Iterable[Node]) -> Backends:
    """Those of `nodes` that fit; raises `Refused` when some have droplets, and all are unfit."""
    needs_public = kind == NETWORK and network == EXTERNAL
    fit: list[Node] = []
    unfit: list[str] = []
    for node in nodes:
        if not ids.droplet_of(node.provider_id):
            continue
        if has_address(node, 4, ("ExternalIP",) if needs_public else ("ExternalIP", "InternalIP")):
            fit.append(node)
        else:
            unfit.append(node.name)
    why = f"a load balancer of type {kind} needs {'public ' if needs_public else ''}IPv4 addresses"
    if unfit and not fit:
        raise Refused(f"no Node is fit for it ({named(unfit)}): {why}")
    by_age = sorted(fit, key=lambda node: node.age_order)
    return Backends(
        [*dict.fromkeys(ids.droplet_of(node.provider_id) for node in by_age)],
        tuple(sorted(node.name for node in fit)),
        {
            node.name: ids.droplet_of(node.provider_id)
            for node in sorted(fit, key=lambda node: node.name)
            if not has_address(node, 6, ("ExternalIP",))
        },
        tuple(sorted(unfit)),
        why,
    )


def has_address(node: Node, version: int, kinds: Collection[str]) -> bool:
    """Whether a Node has an address of this version and of one of these types."""
    for address in node.addresses[:MAX_ADDRESSES]:
        found = read_address(text(address.get("address"))) if address.get("type") in kinds else None
        if found and found.version == version:
            return True
    return False


def creation(request: LoadBalancerRequest, backends: Backends, where: Json) -> Json:
    """The body that makes one; `where` has its name, tags, region and VPC."""
    return {
        **where,
        "type": request.type,
        **request.settings,
        **request.fixed,
        "network": request.network,
        "network_stack": network_stack(request, backends),
        **backends.content,
    }


def network_stack(request: LoadBalancerRequest, backends: Backends) -> str:
    """Upstream's rule; both families need IPv6 on all Nodes where packets pass through."""
    lacks_ipv6 = list(backends.without_ipv6) if request.type == NETWORK else []
    asked = str(request.fixed.get("network_stack", request.stack))
    if request.network == INTERNAL:
        return IPV4
    if asked == DUALSTACK and lacks_ipv6:
        raise Refused(f"network-stack {DUALSTACK} needs IPv6 on all Nodes: not {named(lacks_ipv6)}")
    if asked:
        return asked
    has_both = request.type != NETWORK or (backends.names and not lacks_ipv6)
    return DUALSTACK if has_both else IPV4


def update(current: Json, changed: Json) -> Json:
    """The body that makes these changes and no others."""
    kept = {key: current[key] for key in _KEPT if current.get(key) not in (None, "")}
    if "size" in changed:
        kept.pop("size_unit", None)
    region = text(mapping(current.get("region")).get("slug"))
    return {**kept, "region": region, "droplet_ids": droplets_of(current), **changed}


def check_fixed(request: LoadBalancerRequest, current: Json) -> None:
    """Warn of what a load balancer cannot become; raise `Refused` for another type."""
    kind = text(current.get("type")) or "REGIONAL"
    if request.type != kind:
        raise Refused(
            f"the load balancer is of type {kind}, which cannot be changed after creation; "
            f"recreate the Service to get {request.type}"
        )
    for key in FIXED:
        asked, seen = request.fixed.get(key), current.get(key)
        if asked and seen and asked != seen:
            why = f"the load balancer has {seen}, which cannot be changed after creation"
            request.annotations.ignore(key.replace("_", "-"), why)


def certificate_of(current: Json) -> str:
    """The certificate of its rules; empty when it has none."""
    rules = objects(current.get("forwarding_rules"))
    return next((item for rule in rules if (item := text(rule.get("certificate_id")))), "")


def droplets_of(current: Json) -> list[int]:
    listed = current.get("droplet_ids")
    return [item for item in listed if isinstance(item, int)] if isinstance(listed, list) else []


def named(nodes: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(nodes) - MAX_NAMED
    return ", ".join(nodes[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def completed(current: Json, desired: Json) -> Json:
    """What counts of a record; what it leaves out is a default, or as desired."""
    found = {"http_idle_timeout_seconds": DEFAULT_IDLE_TIMEOUT, **current}
    if not found.get("size") and SIZES.get(desired.get("size", "")) == found.get("size_unit"):
        found["size"] = desired.get("size")
    rules = objects(found.get("forwarding_rules"))
    check, firewall = mapping(desired.get("health_check")), mapping(found.get("firewall"))
    sticky = {"type": "none", **mapping(found.get("sticky_sessions"))}
    kept = ("type",) if sticky["type"] == "none" else tuple(sticky)
    return found | {
        "forwarding_rules": [{key: rule.get(key) for key in _RULE} for rule in rules],
        "health_check": {**check, **_only(mapping(found.get("health_check")), check)},
        "firewall": _only(firewall, ("allow", "deny")),
        "sticky_sessions": _only(sticky, kept),
    }


def lacks(record: Json, settings: Json) -> bool:
    """Whether a record is not what it was to be with these settings, or has no part of its own."""
    has_all = all(map(record.get, ("type", "health_check", "droplet_ids")))
    return not has_all or bool(differences(settings, completed(record, settings)))


def _only(record: Mapping[str, Any], keys: Collection[str]) -> Json:
    return {key: value for key, value in record.items() if key in keys}
