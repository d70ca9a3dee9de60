"""The IAM policy that this provider needs and no wider one: made from the table of its API actions.

`python -m ccm.providers.aws.iam [node | route | service | volume-label]…` prints it, for all
workers together or for those named.
"""

import json
import sys
from collections.abc import Iterable, Mapping

from ccm.model.objects import Json
from ccm.providers.aws.api_actions import API_ACTIONS

_EC2_ACTIONS = {
    "node": "DescribeInstances DescribeAvailabilityZones",
    "route": """
        CreateRoute DeleteRoute DescribeInstances DescribeRouteTables ModifyInstanceAttribute
        ModifyNetworkInterfaceAttribute ReplaceRoute
    """,
    "volume-label": "DescribeVolumes",
    "service": """
        AuthorizeSecurityGroupIngress CreateSecurityGroup DeleteSecurityGroup
        DescribeAvailabilityZones DescribeInstances DescribeRouteTables DescribeSecurityGroups
        DescribeSubnets RevokeSecurityGroupIngress
    """,
}
_ELB_ACTIONS = frozenset(name for name in API_ACTIONS if name.startswith("elb"))

ACTIONS_BY_WORKER: Mapping[str, frozenset[str]] = {
    worker: frozenset(f"ec2:{name}" for name in names.split())
    | (_ELB_ACTIONS if worker == "service" else frozenset())
    for worker, names in _EC2_ACTIONS.items()
}
"""Which actions each worker calls; the service worker those of both types of load balancers."""


def policy(workers: Iterable[str] = tuple(ACTIONS_BY_WORKER)) -> Json:
    """The policy document for these workers."""
    names = {name for worker in workers for name in ACTIONS_BY_WORKER[worker]}
    actions = sorted({API_ACTIONS[name].iam_name for name in names})
    statements: list[Json] = [{"Effect": "Allow", "Action": actions, "Resource": "*"}]
    if "ec2:CreateSecurityGroup" in names:
        statements += _IMPLICIT_STATEMENTS
    return {"Version": "2012-10-17", "Statement": statements}


_IMPLICIT_STATEMENTS: list[Json] = [
    {
        "Effect": "Allow",
        "Action": "ec2:CreateTags",
        "Resource": "arn:*:ec2:*:*:security-group/*",
        "Condition": {"StringEquals": {"ec2:CreateAction": "CreateSecurityGroup"}},
    },
    {
        "Effect": "Allow",
        "Action": "iam:CreateServiceLinkedRole",
        "Resource": "*",
        "Condition": {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}},
    },
]
"""What AWS does for the caller at a tagged security group and an account's first load balancer."""


if __name__ == "__main__":
    print(json.dumps(policy(sys.argv[1:] or ACTIONS_BY_WORKER), indent=2))
