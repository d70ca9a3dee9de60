"""The IAM policy that this provider needs and no wider one: made from the table of its calls.

`python -m ccm.providers.aws.iam [node | route | service | volume-label]…` prints it, for all
workers together or for those named.
"""

import json
import sys
from collections.abc import Iterable, Mapping

from ccm.model.objects import Json
from ccm.providers.aws.calls import CALLS

_READS_OF_INSTANCES = ("ec2:DescribeInstances",)
_ROUTES = (
    "ec2:CreateRoute",
    "ec2:DeleteRoute",
    "ec2:DescribeRouteTables",
    "ec2:ModifyInstanceAttribute",
    "ec2:ModifyNetworkInterfaceAttribute",
    "ec2:ReplaceRoute",
)
_NETWORK = (
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:CreateSecurityGroup",
    "ec2:DeleteSecurityGroup",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:RevokeSecurityGroupIngress",
)

NEEDED_BY: Mapping[str, frozenset[str]] = {
    "node": frozenset({*_READS_OF_INSTANCES, "ec2:DescribeAvailabilityZones"}),
    "route": frozenset({*_READS_OF_INSTANCES, *_ROUTES}),
    "volume-label": frozenset({"ec2:DescribeVolumes"}),
    "service": frozenset(
        {*_READS_OF_INSTANCES, *_NETWORK, *(name for name in CALLS if name.startswith("elb"))}
    ),
}
"""Which calls each worker makes; the service worker makes those of both kinds of balancers."""


def policy(workers: Iterable[str] = tuple(NEEDED_BY)) -> Json:
    """The policy document for these workers."""
    names = {name for worker in workers for name in NEEDED_BY[worker]}
    actions = sorted({CALLS[name].action for name in names})
    statements: list[Json] = [{"Effect": "Allow", "Action": actions, "Resource": "*"}]
    if "ec2:CreateSecurityGroup" in names:
        statements += _IMPLIED
    return {"Version": "2012-10-17", "Statement": statements}


_IMPLIED: list[Json] = [
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
"""What AWS itself does in the name of who makes a tagged group, or the account's first balancer."""


def main(workers: list[str]) -> None:
    print(json.dumps(policy(workers or NEEDED_BY), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
