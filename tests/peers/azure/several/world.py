"""A lab with several load balancers: its machines, its Services and its configuration."""

from collections.abc import Mapping
from dataclasses import dataclass

from ccm.model.objects import Json
from ccm.providers.azure.balancer_configs import KEY
from ccm.providers.azure.lb.annotations import PREFIX
from tests.peers.azure.nodes import CONTROL_PLANE, Shape
from tests.peers.azure.world import BY_ADDRESS, CONFIGS, AzureWorld
from tests.peers.cases import BOTH, DELETED, LOCAL, Case, Cases, Wish, case
from tests.peers.kubelets import EXCLUDED

MAIN, FAST, SIZED, CLOSED = "kubernetes", "fast", "sized", "closed"
INNER, ON = {"load-balancer-internal": "true"}, "load-balancer-configurations"
CLUSTER = {"externalTrafficPolicy": "Cluster"}
OFF = {"disable-load-balancer-floating-ip": "true"}

SHAPES: dict[str, Shape] = {
    "main-1": Shape(zones=(), vm_set="set-main"),
    "main-2": Shape(zones=(), vm_set="set-main", is_ready=False),
    "fast-1": Shape(zones=(), vm_set="set-fast"),
    "fast-2": Shape(zones=(), vm_set="set-fast", labels={"size": "8"}),
    "closed-1": Shape(zones=(), vm_set="set-closed"),
    "size-8": Shape(labels={"size": "8"}),
    "size-4": Shape(labels={"size": "4"}),
    "of-none": Shape(),
    "control-plane": Shape(labels=CONTROL_PLANE),
    "excluded": Shape(labels=EXCLUDED),
    "leaving": Shape(zones=(), vm_set="set-fast"),
}
LATER: dict[str, Shape] = {"late": Shape(zones=(), vm_set="set-fast")}
SEVERAL = [
    {"name": MAIN, "primaryVMSet": "set-main"},
    {
        "name": FAST,
        "primaryVMSet": "set-fast",
        "serviceLabelSelector": {"matchLabels": {"tier": "fast"}},
        "nodeSelector": {"matchExpressions": [{"key": "size", "operator": "In", "values": ["4"]}]},
    },
    {
        "name": SIZED,
        "primaryVMSet": "set-sized",
        "serviceLabelSelector": {"matchExpressions": [{"key": "sized", "operator": "Exists"}]},
        "serviceNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "nodeSelector": {"matchLabels": {"size": "8"}},
    },
    {
        "name": CLOSED,
        "primaryVMSet": "set-closed",
        "allowServicePlacement": False,
        "nodeSelector": {"matchLabels": {"size": "16"}},
    },
]
"""The nodes of no set and without a size can be behind the first one alone."""

ALL: dict[str, Case] = {
    "plain": case({}, then="80,443"),
    "fast": case({}, then="80,443"),
    "sized": case({}, then="80,443"),
    "to-fast": case({}, then="80,443"),
    "from-fast": case({}, then="80,443"),
    "fast-named": case({ON: f" {FAST}, Nowhere"}),
    "fast-on-main": case({ON: MAIN}, {ON: FAST}),
    "on-closed": case({ON: CLOSED}, refused=BOTH),
    "on-nowhere": case({ON: "nowhere"}, refused=BOTH),
    "fast-inner": case(INNER, then="80,443"),
    "inner-to-fast": case(INNER, then="80,443"),
    "fast-to-inner": case({}, INNER),
    "fast-to-outer": case(INNER, {}),
    "own-address": case({"pip-name": "by-hand"}),
    "fast-own-address": case({"pip-name": "by-hand-too"}),
    "named-address": case({"pip-name": "by-hand", ON: MAIN}, refused=BOTH),
    "local": case({}, spec=LOCAL, other=CLUSTER),
    "fast-to-local": case({}, other=LOCAL),
    "fast-local": case({}, spec=LOCAL, then="80,443"),
    "to-fast-local": case({}, spec=LOCAL, then="80,443"),
    "fast-inner-local": case(INNER, spec=LOCAL),
    "fast-local-deleted": case({}, DELETED, spec=LOCAL),
    "deleted": case({}, DELETED),
    "fast-off": case(OFF, {}),
}


class LabelledCases(Cases):
    """Services whose names say which labels they have, at first and later."""

    def manifest(self, name: str, wish: Wish, names: Mapping[str, str]) -> Json:
        body = super().manifest(name, wish, names)
        is_first = wish == self.everything[name].first
        is_fast = name.startswith("fast") or ("from-fast" if is_first else "to-fast") in name
        labels = {"tier": "fast" if is_fast else "none"}
        body["metadata"]["labels"] = labels | ({"sized": ""} if name == "sized" else {})
        return body


@dataclass
class SeveralWorld(AzureWorld):
    """The same in a lab with several load balancers."""

    cases = LabelledCases(ALL, PREFIX)
    shapes = tuple(SHAPES)
    late = tuple(LATER)
    kinds = SHAPES | LATER
    configs = {"": {**CONFIGS[BY_ADDRESS], **CONFIGS[""], KEY: SEVERAL}}
