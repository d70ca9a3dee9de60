"""The IAM policy that this provider needs and no wider one: made from the table of its API actions.

`python -m ccm.providers.aws.iam [--cluster-id=ID] [node | route | service | tagging |
volume-label]…` prints it, for all workers together or for those named.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ccm.model.objects import Json
from ccm.providers.aws.api_actions import API_ACTIONS
from ccm.providers.aws.tags import CLUSTER_TAG_PREFIX

PLACEHOLDER = "CLUSTER_ID"

_EC2_ACTIONS = {
    "node": "DescribeInstances DescribeInstanceTopology DescribeAvailabilityZones",
    "route": """
        CreateRoute DeleteRoute DescribeInstances DescribeRouteTables ModifyInstanceAttribute
        ModifyNetworkInterfaceAttribute ReplaceRoute
    """,
    "tagging": "CreateTags DeleteTags DescribeInstances",
    "volume-label": "DescribeVolumes",
    "service": """
        AuthorizeSecurityGroupIngress CreateSecurityGroup DeleteSecurityGroup
        DescribeAddresses DescribeAvailabilityZones DescribeInstances DescribeRouteTables
        DescribeSecurityGroups DescribeSubnets RevokeSecurityGroupIngress
        UpdateSecurityGroupRuleDescriptionsIngress
    """,
}
_ELB_ACTIONS = frozenset(name for name in API_ACTIONS if name.startswith("elb"))

ACTIONS_BY_WORKER: Mapping[str, frozenset[str]] = {
    worker: frozenset(f"ec2:{name}" for name in names.split())
    | (_ELB_ACTIONS if worker == "service" else frozenset())
    for worker, names in _EC2_ACTIONS.items()
}
"""Which actions each worker calls; the service worker those of both types of load balancers."""


_TAGS_REQUESTED = frozenset({"CreateLoadBalancer", "CreateTargetGroup"})
_UNTAGGED = frozenset(
    {
        "CreateListener",
        "CreateSecurityGroup",
        "DeleteListener",
        "ModifyListener",
        "ModifyNetworkInterfaceAttribute",
    }
)
"""Changes that are bound to no tag: the object is not there yet, or carries none of ours."""
_INSTANCES = "arn:*:ec2:*:*:instance/*"
_RESOURCES = {"CreateTags": _INSTANCES, "DeleteTags": _INSTANCES}
"""What actions are bound to that others could do with any object, by its ARN."""


def policy(
    workers: Iterable[str] = tuple(ACTIONS_BY_WORKER), cluster_id: str = PLACEHOLDER
) -> Json:
    """The policy document for these workers of one cluster.

    What is created carries the cluster's tag, and what lacks it is not changed. Without a
    cluster ID there is no such tag, and no such bounds.
    """
    names = {name for worker in workers for name in ACTIONS_BY_WORKER[worker]}
    by_bounds: dict[tuple[str, str], set[str]] = {}
    for action in map(API_ACTIONS.__getitem__, names):
        condition = _condition(action.operation) if cluster_id else ""
        bounds = condition, _RESOURCES.get(action.operation, "*")
        by_bounds.setdefault(bounds, set()).add(action.iam_name)
    tag = CLUSTER_TAG_PREFIX + cluster_id
    statements = [
        _allow(actions, resource, **{condition: tag} if condition else {})
        for (condition, resource), actions in sorted(by_bounds.items())
    ]
    if "ec2:CreateSecurityGroup" in names:
        statements += _implicit_statements(tag if cluster_id else "")
    return {"Version": "2012-10-17", "Statement": statements}


def _condition(operation: str) -> str:
    """The condition key under which AWS compares tags for this action; empty without one."""
    if operation in _TAGS_REQUESTED:
        return "aws:RequestTag"
    is_free = operation in _UNTAGGED or operation.startswith("Describe")
    return "" if is_free else "aws:ResourceTag"


def _allow(actions: Iterable[str], resource: str = "*", **tags: str) -> Json:
    """A statement; each of `tags`, by condition key, has to be there."""
    needed = {f"{key}/{tag}": "false" for key, tag in tags.items() if tag}
    condition = {"Condition": {"Null": needed}} if needed else {}
    return {"Effect": "Allow", "Action": sorted(actions), "Resource": resource, **condition}


def _implicit_statements(tag: str) -> Iterator[Json]:
    """What AWS does for the caller when objects are created with tags, or the first balancer is."""
    needed = {"Null": {f"aws:RequestTag/{tag}": "false"}} if tag else {}
    group = {"StringEquals": {"ec2:CreateAction": "CreateSecurityGroup"}}
    group_arn = "arn:*:ec2:*:*:security-group/*"
    yield {**_allow(["ec2:CreateTags"], group_arn), "Condition": {**needed, **group}}
    made = {"StringEquals": {"elasticloadbalancing:CreateAction": sorted(_TAGS_REQUESTED)}}
    yield {**_allow(["elasticloadbalancing:AddTags"]), "Condition": {**needed, **made}}
    named = {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}}
    yield {**_allow(["iam:CreateServiceLinkedRole"]), "Condition": named}


def main(words: Sequence[str]) -> None:
    """Print the policy for the workers and the cluster named."""
    flag = "--cluster-id="
    ids = [word.removeprefix(flag) for word in words if word.startswith(flag)]
    workers = [word for word in words if not word.startswith(flag)]
    print(json.dumps(policy(workers or ACTIONS_BY_WORKER, *ids[-1:]), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
