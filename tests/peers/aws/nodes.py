"""The nodes of the comparison on AWS: an instance, and the Node that its kubelet registered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccm.model.objects import UNINITIALIZED_TAINT, Json
from ccm.sandbox.kubelets import ready_condition, registration
from tests.providers.aws.world import ZONES, Account


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instance is like, and what its Node says of itself.

    `name` and `provider_id` may have `{dns}`, `{id}` and `{zone}` of the instance in them. An
    instance that is not running has a kubelet that fell silent.
    """

    zone: str = ZONES[0]
    is_private: bool = False
    name: str = "{dns}"
    provider_id: str = ""
    state: str = "running"
    launch: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    has_second_interface: bool = False
    is_tagged: bool = True
    is_initialized: bool = False


EXCLUDED = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
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
    "stopped": Shape(provider_id=GIVEN, state="stopped", labels=EXCLUDED),
    "terminated": Shape(
        provider_id=GIVEN, state="terminated", labels=EXCLUDED, is_initialized=True
    ),
    "terminated-new": Shape(provider_id=GIVEN, state="terminated", labels=EXCLUDED),
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
    # Upstream's route controller does nothing more once a route leads to an instance that is gone.
    body = registration(shape.name.format(**words), pod_cidr * (shape.state != "terminated"))
    body["metadata"]["labels"] |= shape.labels
    body["metadata"]["annotations"] = dict(shape.annotations)
    if shape.provider_id:
        body["spec"]["providerID"] = shape.provider_id.format(**words)
    if shape.is_initialized:
        taints = [taint for taint in body["spec"]["taints"] if taint["key"] != UNINITIALIZED_TAINT]
        body["spec"]["taints"] = taints
    body["status"]["conditions"] = [ready_condition(shape.state == "running")]
    return body
