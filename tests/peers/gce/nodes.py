"""The nodes of the comparison on GCE: an instance, and the Node that its kubelet registered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccm.model.objects import UNINITIALIZED_TAINT, Json
from ccm.sandbox.kubelets import ready_condition, registration
from tests.labs.gce.cloud import Cloud
from tests.labs.gce.project import PROJECT, ZONES
from tests.providers.gce.adapter import NETWORK

EXCLUDED = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
GIVEN = f"gce://{PROJECT}/{{zone}}/{{name}}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instance is like, and what its Node says of itself.

    Those in no zone have a Node whose machine never was. `name` and `provider_id` may have
    `{name}` and `{zone}` of the instance in them.
    """

    zones: tuple[str, ...] = ZONES[:1]
    instance: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    """What its interface has instead."""
    has_second_card: bool = False
    name: str = "{name}"
    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_ready: bool = True
    is_initialized: bool = False
    has_pods: bool = True


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
    "gone": Shape((), provider_id=GIVEN, is_ready=False, is_initialized=True, labels=EXCLUDED),
    "gone-by-name": Shape((), is_ready=False, is_initialized=True, labels=EXCLUDED),
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
    shape = ALL[shape_name]
    words = {"name": machine["name"], "zone": machine["zone"].rpartition("/")[2]}
    body = registration(
        shape.name.format(**words), pod_cidr * (bool(shape.zones) and shape.has_pods)
    )
    body["metadata"]["labels"] |= shape.labels
    if shape.provider_id:
        body["spec"]["providerID"] = shape.provider_id.format(**words)
    if shape.is_initialized:
        taints = [taint for taint in body["spec"]["taints"] if taint["key"] != UNINITIALIZED_TAINT]
        body["spec"]["taints"] = taints
    body["status"]["conditions"] = [ready_condition(shape.is_ready)]
    return body
