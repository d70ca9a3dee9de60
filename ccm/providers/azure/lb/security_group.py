"""Rules of the security group that let clients reach a Service; shared ones serve several.

A rule's name is upstream's hash of protocol, sources and ports; its destinations are the addresses
of all Services that have the same. Nothing in here acts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from ipaddress import ip_address

from ccm.errors import NoRoom, RetryAfter
from ccm.model.objects import Json, objects, text
from ccm.providers.azure.ids import properties_of
from ccm.providers.azure.lb.plan import covers

RULES = "securityRules"
OWN = "k8s-azure-lb"
LEAST, MOST = 500, 4096  # priorities: from the first on, and below the second
ANY = "*"
DESTINATIONS = (
    *("destinationAddressPrefix", "destinationAddressPrefixes"),
    "destinationApplicationSecurityGroups",
)
LACKING_RETRY = 1.0  # seconds until a group is read again of which an answer lacks a part


@dataclass(frozen=True, slots=True)
class Access:
    """Who may reach which ports, by protocol, and whether all others are denied."""

    sources: Sequence[str]
    ports: Mapping[str, Sequence[str]]
    denies_others: bool = False

    def rules(self, family: str) -> Iterator[Json]:
        """The rules for destinations of one family, without these and without a priority."""
        networks = [source for source in self.sources if _is_network(source)]
        networks = [item for item in networks if (":" in item) is (family == "IPv6")]
        tags = [source for source in self.sources if not _is_network(source)]
        for protocol in ("Tcp", "Udp", ANY):
            ports = self.ports.get(protocol)
            for sources in [*([tag] for tag in tags), *([networks] if networks else [])]:
                if ports:
                    yield _allow(family, protocol, sources, ports)
        if self.denies_others:
            yield {
                "name": f"{OWN}_deny-all_{family}",
                "properties": {
                    "protocol": ANY, "access": "Deny", "direction": "Inbound",
                    "sourceAddressPrefix": ANY, "sourcePortRange": ANY, "destinationPortRange": ANY,
                },
            }  # fmt: skip


Reached = Mapping[str, Collection[str]]
"""What one Service reaches: destinations by the name of a rule."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What addresses that a change is about are to other Services.

    `stale` ones have no Service now. `shared` ones have rules of others as well, or are machines':
    there rules of `kept` ports, by protocol, stay. Of `foreign` ones, whose frontend is another's,
    it is for the other to deny all others.
    """

    stale: Collection[str] = ()
    shared: Collection[str] = ()
    foreign: Collection[str] = ()
    kept: Mapping[str, Collection[str]] = field(default_factory=dict)


def _allow(family: str, protocol: str, sources: Sequence[str], ports: Sequence[str]) -> Json:
    hashed = "_".join((protocol, ",".join(sorted(sources)), ",".join(ports)))
    digest = md5(hashed.encode(), usedforsecurity=False).hexdigest()
    item = {"sourceAddressPrefix": sources[0]}
    return {
        "name": f"{OWN}_allow_{family}_{digest}",
        "properties": {
            "protocol": protocol, "access": "Allow", "direction": "Inbound",
            **(item if len(sources) == 1 else {"sourceAddressPrefixes": [*sources]}),
            "sourcePortRange": ANY, "destinationPortRanges": [*ports],
        },
    }  # fmt: skip


def rules_for(
    access: Access | None, addresses: Collection[str], extent: Extent
) -> dict[str, tuple[Json, set[str]]]:
    """The rules by which `access` reaches the addresses, by name, each with its destinations."""
    wanted: dict[str, tuple[Json, set[str]]] = {}
    for family, version in (("IPv4", 4), ("IPv6", 6)):
        own = {address for address in addresses if ip_address(address).version == version}
        for rule in access.rules(family) if access else ():
            if reached := own - {*extent.foreign} if _denies(rule) else own:
                wanted[rule["name"].lower()] = rule, reached
    return wanted


def apply(
    group: Json,
    access: Access | None,
    addresses: Collection[str],
    extent: Extent,
    others: Iterable[Reached] = (),
) -> None:
    """Let `access` reach the addresses, and nothing else of ours; those of `extent` are left.

    What `others` are known to reach stays. Raises `NoRoom` when no priority is free, and
    `RetryAfter` where a rule to be written back lacks its destinations: an answer left them out.
    """
    properties = properties_of(group)
    rules = [*objects(properties.get(RULES))]
    wanted, result = rules_for(access, addresses, extent), list[Json]()
    touched = {*addresses, *extent.stale, *extent.shared}
    others = [item for item in others if not all(map(touched.isdisjoint, item.values()))]
    for item in rules:
        name, current = text(item.get("name")).lower(), destinations(item)
        if not (is_managed(item) and (current or name in wanted)):
            result.append(item)
            continue
        rule, own = wanted.pop(name, ({}, set[str]()))
        if not covers(item, rule):
            priority = properties_of(item)["priority"]
            item = {**item, "properties": {**properties_of(rule), "priority": priority}}
        left = touched - own
        if _denies(item):
            left -= {*extent.foreign}
        elif left & current and _is_kept(item, extent.kept):
            left = {*extent.stale}
        left = left.difference(*(reached.get(name, ()) for reached in others))
        if after := (current - left) | own:
            result.append(item if after == destinations(item) else _with_destinations(item, after))
    priorities = (properties_of(item).get("priority") for item in result)
    taken = {priority for priority in priorities if isinstance(priority, int)}
    for rule, own in wanted.values():
        priority = _free(taken, is_last=_denies(rule))
        taken.add(priority)
        rule["properties"]["priority"] = priority
        result.append(_with_destinations(rule, own))
    lacking = [item for item in rules if is_managed(item) and not _leads(item)]
    if lacking and result != rules:
        why = f"the answer lacks the destinations of rule {text(lacking[0].get('name'))}"
        raise RetryAfter(why, LACKING_RETRY)
    properties[RULES] = result
    group["properties"] = properties


def is_managed(rule: Json) -> bool:
    """Whether a rule is a controller's: by its name and its priority, as upstream."""
    priority = properties_of(rule).get("priority")
    is_ours = text(rule.get("name")).startswith(OWN)
    return is_ours and isinstance(priority, int) and LEAST <= priority <= MOST


def destinations(rule: Json) -> set[str]:
    """The addresses that a rule lets clients reach."""
    properties = properties_of(rule)
    several = properties.get("destinationAddressPrefixes")
    found = {text(item) for item in several} if isinstance(several, list) else set[str]()
    return found | ({text(properties.get("destinationAddressPrefix"))} - {""})


def _leads(rule: Json) -> bool:
    """Whether it has any destinations; a person may have given it groups in place of addresses."""
    return any(map(properties_of(rule).get, DESTINATIONS))


def _with_destinations(rule: Json, addresses: Collection[str]) -> Json:
    properties = properties_of(rule)
    for key in DESTINATIONS:
        properties.pop(key, None)
    if len(addresses) == 1:
        properties["destinationAddressPrefix"] = next(iter(addresses))
    else:
        properties["destinationAddressPrefixes"] = sorted(addresses)
    return {**rule, "properties": properties}


def _denies(rule: Json) -> bool:
    return properties_of(rule).get("access") == "Deny"


def _is_kept(rule: Json, kept: Mapping[str, Collection[str]]) -> bool:
    """Whether another Service has one of its ports there; two never have the same."""
    properties = properties_of(rule)
    ports = properties.get("destinationPortRanges")
    listed = {text(port) for port in ports} if isinstance(ports, list) else set[str]()
    return not listed.isdisjoint(kept.get(text(properties.get("protocol")), ()))


def _free(taken: Collection[object], *, is_last: bool) -> int:
    choices = range(MOST - 1, LEAST - 1, -1) if is_last else range(LEAST, MOST)
    for priority in choices:
        if priority not in taken:
            return priority
    raise NoRoom(f"the security group has no free priority from {LEAST} to {MOST - 1}")


def _is_network(source: str) -> bool:
    return "/" in source
