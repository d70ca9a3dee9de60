"""Several load balancers: which one a Service is on, and which machines are behind which.

By upstream's rules. What is on one stays as long as it may; nothing in here acts.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ccm.errors import Refused
from ccm.model.objects import Json, Node, objects, text
from ccm.providers.azure.balancer_configs import BalancerConfig, matches
from ccm.providers.azure.ids import key_of, properties_of
from ccm.providers.azure.lb.annotations import CONFIGURATIONS, PREFIX
from ccm.providers.azure.lb.plan import RULES, frontends_of, own_frontends
from ccm.providers.azure.lb.request import BalancerRequest


class Place(NamedTuple):
    """A load balancer by its configured name in lower case, or the internal twin of it."""

    name: str
    is_internal: bool


Balancers = Mapping[Place, Json]
"""The load balancers that are there."""


def choose(
    request: BalancerRequest,
    balancers: Balancers,
    public: Collection[str],
    namespace: Mapping[str, str],
    expected: Mapping[Place, int],
) -> Place:
    """Where the Service belongs; raises `Refused` where no load balancer takes it.

    `public` are the keys of addresses that it names, `namespace` the labels of its namespace,
    `expected` rules of others that are not in these load balancers yet.
    """
    own_kind = {
        place.name: item
        for place, item in balancers.items()
        if place.is_internal == request.is_internal
    }
    used = {place.name for place, item in balancers.items() if own_frontends(item, request.names)}
    choices = _choices(request, used, namespace)
    holding = [
        name
        for name, item in own_kind.items()
        if request.has_fixed_address and _has(item, request, public)
    ]
    if holding and holding[0] not in choices:
        raise Refused(
            f"its address is on load balancer {holding[0]}, which does not take it: it may be on"
            f" {', '.join(choices)}"
        )
    here = [name for name, item in own_kind.items() if own_frontends(item, request.names)]
    for name in (*holding, *here, *(name for name in choices if name in used)):
        if name in choices:
            return Place(name, request.is_internal)
    counts = {name: len(objects(properties_of(own_kind[name]).get(RULES))) for name in own_kind}
    for place, count in expected.items():
        if place.is_internal == request.is_internal:
            counts[place.name] = counts.get(place.name, 0) + count
    # An empty one before one that is not there.
    best = min(choices, key=lambda name: counts.get(name, 0) if counts.get(name) != 0 else -1)
    return Place(best, request.is_internal)


def _choices(
    request: BalancerRequest, used: Collection[str], namespace: Mapping[str, str]
) -> list[str]:
    """The load balancers that take the Service; those that select it before all others."""
    configs, annotations = request.config.balancers, request.annotations
    asked = [item.lower() for item in annotations.few(CONFIGURATIONS)]
    where = f"annotation {PREFIX}{CONFIGURATIONS}"
    if asked and request.has_fixed_address:
        raise Refused(f"{where}: the Service names an address, which has its load balancer")
    for name in asked:
        if name not in [config.key for config in configs]:
            annotations.warnings.append(f"{where}: no load balancer {name} is configured")
    found = [config for config in configs if not asked or config.key in asked]
    found = [item for item in found if item.allow_service_placement or item.key in used]
    found = [item for item in found if item.takes(request.service.labels, namespace)]
    if not found:
        names = ", ".join(asked or [config.key for config in configs])
        raise Refused(f"no load balancer of {names} takes it: check their selectors")
    selecting = [item for item in found if item.selects]
    return [item.key for item in selecting or found]


def _has(balancer: Json, request: BalancerRequest, public: Collection[str]) -> bool:
    """Whether a frontend has the address that the Service names."""
    return any(
        key_of(properties.get("publicIPAddress")) in public
        or text(properties.get("privateIPAddress")) in request.fixed.values()
        for properties in map(properties_of, frontends_of(balancer))
    )


def spread(
    configs: Sequence[BalancerConfig],
    joined: Mapping[str, AbstractSet[str]],
    nodes: Sequence[Node],
    vm_sets: Mapping[str, str],
) -> dict[str, set[str]]:
    """The names of the nodes behind each load balancer; of none where no load balancer takes it.

    `joined` are those that are there now, by load balancers that are there; `vm_sets` are by node.
    """
    names = {node.name for node in nodes}
    found = {key: names & joined[key] for key in joined}
    present = [config for config in configs if config.key in joined]
    primary = {config.primary_vm_set.lower(): config.key for config in present}

    def move(name: str, key: str) -> None:
        for some in found.values():
            some.discard(name)
        found.get(key, set[str]()).add(name)

    rest = list[Node]()
    for node in nodes:
        if key := primary.get(vm_sets[node.name].lower()):
            move(node.name, key)
        else:
            rest.append(node)
    plain = [item.key for item in present if not item.node_selector]
    selecting = [item for item in present if item.node_selector]
    for node in rest:
        choices = [item.key for item in selecting if matches(item.node_selector, node.labels)]
        choices = choices or plain
        current = [key for key in choices if node.name in found[key]]
        fewest = min(choices, key=lambda key: len(found[key]), default="")
        move(node.name, current[-1] if current else fewest)
    return found
