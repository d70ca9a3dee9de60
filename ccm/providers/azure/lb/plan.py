"""What a shared load balancer becomes by one Service: its own parts; all others stay as they are.

Nothing in here acts: each function changes a resource in place, before it is written.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.errors import NoRoom, Refused, RetryAfter, TakenByAnother
from ccm.model.objects import Json, copy_of, objects, text
from ccm.providers.azure.ids import id_of, key_of, name_of, properties_of
from ccm.providers.azure.lb.names import BASE, IPV6, SHARED_PROBE, Names
from ccm.providers.azure.lb.request import TRANSPORTS, BalancerRequest

FRONTENDS, RULES, PROBES = "frontendIPConfigurations", "loadBalancingRules", "probes"
POOLS = "backendAddressPools"
LEADING = (RULES, "inboundNatRules", "inboundNatPools")
"""What leads clients of a frontend's ports somewhere."""
REFERRING = ("outboundRules", *LEADING)
"""What else may use a frontend."""
SECURITY_PROTOCOLS = {"tcp": "Tcp", "udp": "Udp", "all": "*"}
NO_ADDRESS_RETRY = 2.0  # seconds until an address is looked for again that is not there yet
ALL, MOST_PORT = "ALL", 65535
Socket = tuple[str, int]
"""A port as rules have it: `Tcp` or `Udp`, and its number."""


def covers(current: Any, wanted: Any) -> bool:
    """Whether what is there is all that is wanted: texts in any case, lists in any order."""
    if isinstance(wanted, dict):
        return isinstance(current, dict) and all(
            covers(current.get(key), item) for key, item in wanted.items()
        )
    if isinstance(wanted, str) and isinstance(current, str):
        return current.lower() == wanted.lower()
    if isinstance(wanted, list) and isinstance(current, list):
        return sorted(map(str, current)) == sorted(map(str, wanted))
    return bool(current == wanted)


@dataclass(frozen=True, slots=True)
class BalancerPlan:
    """The load balancer `id` of a Service; `public` are addresses by family, or there is a subnet.

    `zones` are those of a new internal frontend.
    """

    id: str
    request: BalancerRequest
    public: Mapping[str, str] = field(default_factory=dict)
    subnet: str = ""
    zones: Sequence[str] = ()
    shares: bool = True  # frontends with other Services
    taken: Mapping[str, Collection[Socket]] = field(default_factory=dict)
    """Ports of others by address, also those without a rule, as far as they are known."""
    claimed: Collection[str] = ()
    """Addresses of others, which no load balancer has while they move."""

    def apply(self, balancer: Json) -> None:
        """Raises `Refused` for what a load balancer cannot take, `NoRoom` for too many rules,
        `RetryAfter` for an address that moves.
        """
        sku = text((balancer.get("sku") or {}).get("name"))
        if sku.lower() != "standard":
            raise Refused(
                f"load balancer {name_of(self.id)} is {sku}: only standard ones are served"
            )
        names, properties = self.request.names, properties_of(balancer)
        used = _used(properties, names)
        self._check_pools(properties)
        frontends, rules, probes = list[Json](), list[Json](), list[Json]()
        moving = {*self.claimed} - {*map(address_of, frontends_of(balancer))}
        for family in self.request.families:
            frontend = self._frontend(family)
            if shared := self.shared_frontend(balancer, family):
                if not self.shares:
                    raise Refused(f"frontend {text(shared.get('name'))} is another Service's")
                self._check_sharing(properties, shared)
                frontend_id = id_of(shared)
            elif (address := address_of(frontend)) in moving:
                why = f"address {name_of(address)} is another Service's, which moves"
                raise RetryAfter(why, NO_ADDRESS_RETRY)
            else:
                frontends.append(frontend)
                frontend_id = f"{self.id}/{FRONTENDS}/{frontend['name']}"
            pool = f"{self.id}/{POOLS}/{names.pool(family)}"
            rules += self.request.rules(family, frontend_id, pool, f"{self.id}/{PROBES}")
            probes += [probe for probe in self.request.probes(family) if probe not in probes]
        pools = [{"name": names.pool(item)} for item in self.request.families]
        properties[RULES] = merged(objects(properties.get(RULES)), rules, names.is_own)
        _replace_pools(properties, names, pools)
        most = self.request.config.maximum_load_balancer_rule_count
        if len(properties[RULES]) > most:
            raise NoRoom(f"load balancer {name_of(self.id)} would have more than {most} rules")
        _replace(properties, names, frontends, probes, used)
        balancer["properties"] = properties

    def _check_pools(self, properties: Json) -> None:
        """Raise `Refused` where the Service's own pool, by upstream's name, is another's as well.

        `a-b/c` and `a/b-c` have one, and so have `c` for IPv6 and `c-ipv6`.
        """
        for rule in (item for kind in REFERRING for item in objects(properties.get(kind))):
            pool = name_of(id_of(properties_of(rule).get("backendAddressPool")))
            is_own = self.request.names.is_own(text(rule.get("name")))
            if self.request.names.owns_pool(pool) and not is_own:
                raise Refused(f"pool {pool} is another Service's: give one of them another name")

    def _check_sharing(self, properties: Json, frontend: Json) -> None:
        """Raise `Refused` where one of those who share a frontend would have all its ports, and
        `TakenByAnother` for a port of another: kube-proxy leads it to one of the two.
        """
        rules = [
            properties_of(rule)
            for rule in objects(properties.get(RULES))
            if not self.request.names.is_own(text(rule.get("name")))
        ]
        current = [
            item
            for item in rules
            if key_of(item.get("frontendIPConfiguration")) == key_of(frontend)
        ]
        if self.request.is_ha or any(item.get("protocol") == "All" for item in current):
            name = text(frontend.get("name"))
            raise Refused(f"frontend {name} is another Service's: one of them has all its ports")
        asked, known = sockets_of(self.request), {*self.taken.get(address_of(frontend), ())}
        taken = [number for protocol, number in asked if (protocol, number) in known]
        taken += led_by_others([properties], self.request.names, {key_of(frontend)}, asked)
        if taken:
            where = f"port {taken[0]} of frontend {text(frontend.get('name'))}"
            raise TakenByAnother(f"{where} is another Service's: use another port, or address")

    def shared_frontend(self, balancer: Json, family: str) -> Json | None:
        """Another Service's frontend that has the address which this one asks for."""
        wanted = properties_of(self._frontend(family))
        for frontend in frontends_of(balancer):
            current = properties_of(frontend)
            if self.request.names.is_own(text(frontend.get("name"))):
                continue
            public, private = key_of(wanted.get("publicIPAddress")), wanted.get("privateIPAddress")
            if public and key_of(current.get("publicIPAddress")) == public:
                return frontend
            if private and current.get("privateIPAddress") == private:
                return frontend
        return None

    def _frontend(self, family: str) -> Json:
        name, fixed = self.request.names.frontend(family), self.request.fixed.get(family)
        if not self.request.is_internal:
            properties: Json = {"publicIPAddress": {"id": self.public[family]}}
            return {"name": name, "properties": properties}
        properties = {"subnet": {"id": self.subnet}}
        if fixed:
            properties |= {"privateIPAllocationMethod": "Static", "privateIPAddress": fixed}
        if family == IPV6:
            properties["privateIPAddressVersion"] = "IPv6"
        zones = {"zones": [*self.zones]} if self.zones else {}
        return {"name": name, "properties": properties, **zones}


def sockets_of(request: BalancerRequest) -> list[Socket]:
    """All of a Service, also those without a rule of the load balancer: kube-proxy serves them."""
    return [(TRANSPORTS[port.protocol], port.number) for port in request.ports]


def remove(balancer: Json, names: Names) -> None:
    """Take the Service's parts out; a frontend that others use stays."""
    properties = properties_of(balancer)
    used = _used(properties, names)
    properties[RULES] = merged(objects(properties.get(RULES)), [], names.is_own)
    _replace_pools(properties, names, [])
    _replace(properties, names, [], [], used)
    balancer["properties"] = properties


def _used(properties: Json, names: Names) -> set[str]:
    """The frontends of the Service's rules, which may be others'."""
    return {
        key_of(properties_of(rule).get("frontendIPConfiguration"))
        for rule in objects(properties.get(RULES))
        if names.is_own(text(rule.get("name")))
    }


def remove_node_ports(balancer: Json, names: Names) -> None:
    """Take out the Service's rules that do not float; its frontends stay."""
    properties = properties_of(balancer)
    properties[RULES] = [
        rule
        for rule in objects(properties.get(RULES))
        if not names.is_own(text(rule.get("name")))
        or properties_of(rule).get("enableFloatingIP") is True
    ]
    balancer["properties"] = properties


def _replace_pools(properties: Json, names: Names, pools: Sequence[Json]) -> None:
    """Add these pools; the Service's own goes once no rule needs it."""
    used = {
        key_of(properties_of(record).get("backendAddressPool"))
        for kind in REFERRING
        for record in objects(properties.get(kind))
    }
    current = objects(properties.get(POOLS))
    kept = [text(item.get("name")) for item in current if key_of(item) in used]
    properties[POOLS] = merged(
        current, pools, lambda name: names.owns_pool(name) and name not in kept
    )


def _replace(
    properties: Json,
    names: Names,
    frontends: Sequence[Json],
    probes: Sequence[Json],
    used: Collection[str],
) -> None:
    """Make these the Service's frontends and probes; `used` are others that it shared."""
    rules = objects(properties.get(RULES))
    probed = {key_of(properties_of(item).get("probe")) for item in rules}
    current = objects(properties.get(PROBES))
    shared = {key_of(item) for item in current if item.get("name") == SHARED_PROBE} - probed
    properties[PROBES] = merged(
        current, probes, lambda name: names.is_own(name) or (name == SHARED_PROBE and bool(shared))
    )
    wanted = {frontend["name"].lower() for frontend in frontends}
    referred = {
        key_of(properties_of(record).get("frontendIPConfiguration"))
        for kind in REFERRING
        for record in objects(properties.get(kind))
    } | {
        key_of(record)
        for rule in objects(properties.get("outboundRules"))
        for record in objects(properties_of(rule).get(FRONTENDS))
    }
    left = {
        key_of(record)
        for record in objects(properties.get(FRONTENDS))
        if text(record.get("name")).lower() not in wanted
        and key_of(record) not in referred
        and (
            names.is_own(text(record.get("name")))
            or (key_of(record) in used and BASE.match(text(record.get("name"))))
        )
    }
    kept = [record for record in objects(properties.get(FRONTENDS)) if key_of(record) not in left]
    properties[FRONTENDS] = merged(kept, frontends, lambda _: False, keeps=("zones",))


def merged(
    current: Sequence[Json],
    wanted: Sequence[Json],
    is_own: Callable[[str], bool],
    keeps: Sequence[str] = (),
) -> list[Json]:
    """Others' as they are, own ones as wanted and no more; what is right is not touched.

    What `keeps` names is of new ones only.
    """
    missing = {item["name"].lower(): item for item in wanted}
    found = list[Json]()
    for item in current:
        match = missing.pop(text(item.get("name")).lower(), None)
        if match is None:
            found += [] if is_own(text(item.get("name"))) else [item]
            continue
        match = {key: value for key, value in match.items() if key not in keeps}
        found.append(item if covers(item, match) else {**_kept(item, keeps), **match})
    return [*found, *missing.values()]


def _kept(record: Json, keys: Sequence[str]) -> Json:
    return {key: record[key] for key in keys if key in record}


def own_frontends(balancer: Json, names: Names) -> list[Json]:
    """The Service's own, and those that its rules share."""
    properties = properties_of(balancer)
    shared = _used(properties, names)
    return [
        record
        for record in objects(properties.get(FRONTENDS))
        if names.is_own(text(record.get("name"))) or key_of(record) in shared
    ]


def frontends_in(balancers: Iterable[Json], names: Names) -> list[Json]:
    """The same in all of these load balancers."""
    return [frontend for balancer in balancers for frontend in own_frontends(balancer, names)]


def is_contested(balancers: Iterable[Json], names: Names) -> bool:
    """Whether another's rule has a port that the Service asks for, at a frontend that it has."""
    balancers = list(balancers)
    keys = {key_of(item) for item in frontends_in(balancers, names)}
    asked = [(protocol, int(number)) for protocol, number in names.service.sockets]
    return any(True for _ in led_by_others(map(properties_of, balancers), names, keys, asked))


def led_by_others(
    balancers: Iterable[Json], names: Names, keys: Collection[str], asked: Iterable[Socket]
) -> Iterator[int]:
    """Of the ports asked for one that each rule of others leads at frontends of these IDs, if any:
    to a Service, or by translation of addresses to a machine. `balancers` are their properties.
    """
    sockets = [(protocol.upper(), number) for protocol, number in asked]
    ports = {
        kind: sorted(
            number for protocol, number in sockets if ALL in (kind, protocol) or kind == protocol
        )
        for kind in ("TCP", "UDP", ALL)
    }
    rules = (rule for it in balancers for kind in LEADING for rule in objects(it.get(kind)))
    for rule in rules:
        properties = properties_of(rule)
        first = properties.get("frontendPortRangeStart") or properties.get("frontendPort")
        is_there = key_of(properties.get("frontendIPConfiguration")) in keys
        if not is_there or names.is_own(text(rule.get("name"))) or not isinstance(first, int):
            continue
        last = properties.get("frontendPortRangeEnd") or first or MOST_PORT
        listed = ports.get(text(properties.get("protocol")).upper(), [])
        yield from listed[bisect_left(listed, first) : bisect_right(listed, last)][:1]


def address_of(frontend: Json) -> str:
    """The ID of its public address, or its private address."""
    properties = properties_of(frontend)
    return key_of(properties.get("publicIPAddress")) or text(properties.get("privateIPAddress"))


def public_keys(balancers: Iterable[Json]) -> set[str]:
    """The public addresses of all frontends."""
    frontends = (item for balancer in balancers for item in frontends_of(balancer))
    return {key_of(properties_of(item).get("publicIPAddress")) for item in frontends}


def bases_in(balancer: Json) -> set[str]:
    """The base names of the Services that have a frontend or rule there."""
    parts = [*frontends_of(balancer), *objects(properties_of(balancer).get(RULES))]
    found = (BASE.match(text(item.get("name"))) for item in parts)
    return {match[0].lower() for match in found if match}


def frontends_of(balancer: Json) -> list[Json]:
    """All that there are."""
    return objects(properties_of(balancer).get(FRONTENDS))


def pools_of(balancer: Json) -> list[Json]:
    """The first of each name, as Azure has no second one: each is compared with all machines."""
    found = dict[str, Json]()
    for pool in objects(properties_of(balancer).get(POOLS)):
        found.setdefault(text(pool.get("name")).lower(), pool)
    return [*found.values()]


def is_shared(balancer: Json, names: Names) -> bool:
    """Whether others use a frontend of the Service's, so that it has to stay."""
    left = copy_of(balancer)
    remove(left, names)
    return any(names.is_own(text(item.get("name"))) for item in frontends_of(left))


def is_used(balancer: Json) -> bool:
    """Whether there is a reason to keep a load balancer."""
    return bool(properties_of(balancer).get(FRONTENDS))


def may_fill(balancer: Json, names: Names, pool: Json) -> bool:
    """Whether the Service says what is in a pool: of one of its own name only if it uses it."""
    return not names.owns_pool(text(pool.get("name"))) or any(
        key_of(properties_of(rule).get("backendAddressPool")) == key_of(pool)
        for rule in objects(properties_of(balancer).get(RULES))
        if names.is_own(text(rule.get("name")))
    )


def has_parts(balancer: Json, names: Names) -> bool:
    """Whether the Service has rules or probes in it, or a pool of its own."""
    properties = properties_of(balancer)
    parts = [*objects(properties.get(RULES)), *objects(properties.get(PROBES))]
    return any(names.is_own(text(item.get("name"))) for item in parts) or any(
        names.owns_pool(text(item.get("name"))) for item in pools_of(balancer)
    )


def has_own_node_ports(balancers: Iterable[Json], names: Names) -> bool:
    """Whether clients reach this Service at the machines' addresses, whatever is annotated now."""
    return any(
        names.is_own(text(rule.get("name")))
        and properties_of(rule).get("enableFloatingIP") is not True
        for balancer in balancers
        for rule in objects(properties_of(balancer).get(RULES))
    )


def has_node_ports(balancers: Iterable[Json]) -> bool:
    """Whether some address does not float, so that clients have to reach machines."""
    return any(
        properties_of(rule).get("enableFloatingIP") is not True
        for balancer in balancers
        for rule in objects(properties_of(balancer).get(RULES))
    )


def shared_frontends(
    balancers: Iterable[Json], names: Names, frontends: Iterable[Json]
) -> list[Json]:
    """Those of the frontends that rules of other Services use."""
    used = {
        key_of(properties_of(rule).get("frontendIPConfiguration"))
        for balancer in balancers
        for rule in objects(properties_of(balancer).get(RULES))
        if not names.is_own(text(rule.get("name")))
    }
    return [frontend for frontend in frontends if key_of(frontend) in used]


def ports_of_others(
    balancers: Iterable[Json], names: Names, frontends: Sequence[Json]
) -> dict[str, set[str]]:
    """Ports by protocol that other Services have on the same addresses.

    Those are of the same frontends, or of machines, where an address does not float.
    """
    keys, found = {key_of(frontend) for frontend in frontends}, dict[str, set[str]]()
    for balancer in balancers:
        for rule in objects(properties_of(balancer).get(RULES)):
            properties = properties_of(rule)
            is_shared = key_of(properties.get("frontendIPConfiguration")) in keys
            floats = properties.get("enableFloatingIP") is True
            if not names.is_own(text(rule.get("name"))) and (is_shared or not floats):
                protocol = SECURITY_PROTOCOLS.get(text(properties.get("protocol")).lower(), "*")
                found.setdefault(protocol, set()).add(str(properties.get("backendPort")))
    return found
