"""The nodes of the comparison on GCE: an instance, and the Node that its kubelet registered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccm.model.objects import Json
from tests.labs.gce.cloud import Cloud
from tests.labs.gce.project import PROJECT, ZONES
from tests.peers.kubelets import EXCLUDED, NodeShape, node_of
from tests.providers.gce.adapter import NETWORK

GIVEN = f"gce://{PROJECT}/{{zone}}/{{name}}"


@dataclass(frozen=True, slots=True)
class Shape(NodeShape):
    """What an instance is like; the words of its Node are its `{name}` and `{zone}`.

    Those in no zone have a Node whose machine never was.
    """

    zones: tuple[str, ...] = ZONES[:1]
    instance: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    """What its interface has instead."""
    has_second_card: bool = False


NAT = {"type": "ONE_TO_ONE_NAT", "name": "External NAT"}
OUTER_V6 = {"type": "DIRECT_IPV6", "name": "v6", "externalIpv6": "2001:db8:1::1"}
SHAPES: dict[str, Shape] = {
    "plain": Shape(),
    "second-zone": Shape(ZONES[1:2]),
    "third-zone": Shape(ZONES[2:]),
    "given-id": Shape(provider_id=GIVEN),
    # Upstream makes its route again each second: it looks for a Node called like the instance.
    "domain": Shape(name="{name}.c.lab.internal", labels=EXCLUDED, has_pods=False),
    "private": Shape(card={"accessConfigs": []}),
    "without-nat": Shape(card={"accessConfigs": [NAT]}, labels=EXCLUDED),
    "two-cards": Shape(has_second_card=True),
    "inner-v6": Shape(card={"ipv6Address": "fd20::1", "stackType": "IPV4_IPV6"}),
    "outer-v6": Shape(card={"ipv6AccessType": "EXTERNAL", "ipv6AccessConfigs": [OUTER_V6]}),
    "no-forward": Shape(instance={"canIpForward": False}, labels=EXCLUDED),
    "excluded": Shape(labels=EXCLUDED),
    "stopped": Shape(
        instance={"status": "TERMINATED"}, provider_id=GIVEN, is_ready=False, labels=EXCLUDED
    ),
    "suspended": Shape(
        instance={"status": "SUSPENDED"}, provider_id=GIVEN, is_ready=False, labels=EXCLUDED
    ),
    "repairing": Shape(
        instance={"status": "REPAIRING"}, provider_id=GIVEN, is_ready=False, labels=EXCLUDED
    ),
    "twins": Shape(ZONES[:2], labels=EXCLUDED),
    "other-name": Shape(name="someone", labels=EXCLUDED),
    "other-cloud": Shape(provider_id="aws:///zone/i-0123456789abcdef0", labels=EXCLUDED),
    "other-project": Shape(provider_id="gce://other/{zone}/{name}", labels=EXCLUDED),
    "short-id": Shape(provider_id="gce://{zone}/{name}", labels=EXCLUDED),
    "gone": Shape(
        (), provider_id=GIVEN, is_ready=False, is_initialized=True, labels=EXCLUDED, has_pods=False
    ),
    "gone-by-name": Shape((), is_ready=False, is_initialized=True, labels=EXCLUDED, has_pods=False),
    "leaving": Shape(ZONES[1:2]),
}
LATER: dict[str, Shape] = {"late": Shape(ZONES[2:])}
"""Which join later; `leaving` leaves then."""
ALL = SHAPES | LATER


def launch(cloud: Cloud, name: str) -> Json:
    """The instance of a shape; of twins the first one."""
    shape, made = ALL[name], list[Json]()
    for zone in shape.zones:
        one = cloud.add_instance(name, zone, **shape.instance)
        (card,) = one["networkInterfaces"]
        card |= shape.card
        if shape.has_second_card:
            second = {"name": "nic1", "network": cloud.link(f"{NETWORK}-2")}
            second["networkIP"] = f"10.9.0.{len(cloud.objects) % 250}"
            one["networkInterfaces"].append(second)
        made.append(one)
    return made[0] if made else {"name": name, "zone": ZONES[0]}


def manifest(shape_name: str, machine: Json, pod_cidr: str) -> Json:
    """The Node as its kubelet registers it."""
    words = {"name": machine["name"], "zone": machine["zone"].rpartition("/")[2]}
    return node_of(ALL[shape_name], words, pod_cidr)
