"""The nodes of the comparison on AWS: an instance, and the Node that its kubelet registered."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ccm.model.objects import Json
from tests.peers.kubelets import EXCLUDED, NodeShape, node_of
from tests.providers.aws.world import ZONES, Account


@dataclass(frozen=True, slots=True)
class Shape(NodeShape):
    """What an instance is like; the words of its Node are its `{dns}`, `{id}` and `{zone}`."""

    zone: str = ZONES[0]
    is_private: bool = False
    state: str = "running"
    launch: Mapping[str, Any] = field(default_factory=dict)
    has_second_interface: bool = False
    is_tagged: bool = True
    _: KW_ONLY
    name: str = "{dns}"


GIVEN = "aws:///{zone}/{id}"
SHAPES: dict[str, Shape] = {
    "public": Shape(),
    "private": Shape(ZONES[1], is_private=True),
    "web": Shape(ZONES[1], labels={"role": "web"}),
    "other-role": Shape(ZONES[2], labels={"role": "db"}),
    "two-interfaces": Shape(launch={"InstanceType": "c5.xlarge"}, has_second_interface=True),
    "named-by-id": Shape(name="{id}"),
    "given-id": Shape(provider_id=GIVEN),
    "bare-id": Shape(provider_id="{id}"),
    "id-without-zone": Shape(provider_id="aws:////{id}"),
    "wrong-zone": Shape(ZONES[2], provider_id="aws:///us-east-1a/{id}"),
    "other-cloud": Shape(provider_id="gce://project/zone/{id}", labels=EXCLUDED),
    # Upstream registers what does not run, which AWS refuses: no NLB would be finished.
    "stopped": Shape(provider_id=GIVEN, state="stopped", labels=EXCLUDED, is_ready=False),
    # Upstream's route controller does nothing more once a route leads to an instance that is gone.
    "terminated": Shape(
        provider_id=GIVEN,
        state="terminated",
        labels=EXCLUDED,
        is_ready=False,
        has_pods=False,
        is_initialized=True,
    ),
    "terminated-new": Shape(
        provider_id=GIVEN, state="terminated", labels=EXCLUDED, is_ready=False, has_pods=False
    ),
    "other-name": Shape(name="worker-1"),
    "other-name-given-id": Shape(name="worker-2", provider_id=GIVEN),
    "untagged": Shape(provider_id=GIVEN, labels=EXCLUDED, is_tagged=False),
    "untagged-by-name": Shape(labels=EXCLUDED, is_tagged=False),
    "excluded": Shape(labels=EXCLUDED),
    "old-labels": Shape(
        labels={
            "beta.kubernetes.io/instance-type": "m1.small",
            "failure-domain.beta.kubernetes.io/zone": "us-east-1z",
        }
    ),
    "accelerated": Shape(launch={"InstanceType": "p4d.24xlarge"}),
    "leaving": Shape(),
}
PLAIN = tuple(
    name for name, shape in SHAPES.items() if shape.labels != EXCLUDED and name != "other-name"
)
"""Which upstream's controller and ours initialize: the members of load balancers."""
LATER: dict[str, Shape] = {"late": Shape(ZONES[2])}
"""Which join later; `leaving` leaves then."""


def launch(account: Account, shape: Shape) -> Json:
    """The instance as it is when the kubelet's last word was heard."""
    subnets = account.private if shape.is_private else account.public
    options = {"SubnetId": subnets[shape.zone], **shape.launch}
    if not shape.is_tagged:
        options["TagSpecifications"] = []
    (instance,) = account.launch(zone=shape.zone, **options)
    if shape.has_second_interface:
        account.add_interface(instance, account.private[shape.zone])
    ids = [instance["InstanceId"]]
    if shape.state == "stopped":
        account.ec2.stop_instances(InstanceIds=ids)
    if shape.state == "terminated":
        account.ec2.terminate_instances(InstanceIds=ids)
    return instance


def manifest(shape: Shape, instance: Json, pod_cidr: str) -> Json:
    """The Node as its kubelet registers it."""
    words = {
        "dns": instance["PrivateDnsName"],
        "id": instance["InstanceId"],
        "zone": instance["Placement"]["AvailabilityZone"],
    }
    return node_of(shape, words, pod_cidr)
