"""Which reads the credentials may not make, found out by making them once; nothing is written."""

from ccm.errors import CloudError
from ccm.model.objects import Json, objects, text
from ccm.providers.aws.api_actions import API_ACTIONS
from ccm.providers.aws.client import AwsApi, NotAllowed

NO_SUCH_NAME = "ccm-supervisor-check"
ABOUT_ANYTHING: dict[str, Json] = {
    "ec2:DescribeAvailabilityZones": {},
    "ec2:DescribeRouteTables": {"MaxResults": 5},
    "ec2:DescribeSecurityGroups": {"MaxResults": 5},
    "ec2:DescribeSubnets": {"MaxResults": 5},
    "elb:DescribeLoadBalancerAttributes": {"LoadBalancerName": NO_SUCH_NAME},
    "elb:DescribeTags": {"LoadBalancerNames": [NO_SUCH_NAME]},
}
"""Of the actions that both versions of Elastic Load Balancing have, IAM knows one each."""
ABOUT_ONE = (
    (
        "elbv2:DescribeLoadBalancers",
        "LoadBalancers",
        "LoadBalancerArn",
        ["elbv2:DescribeListeners"],
    ),
    (
        "elbv2:DescribeTargetGroups",
        "TargetGroups",
        "TargetGroupArn",
        ["elbv2:DescribeTargetHealth", "elbv2:DescribeTargetGroupAttributes"],
    ),
)
"""What lists objects, and what is asked about one of them, if there is any."""


def missing_permissions(api: AwsApi) -> list[str]:
    """The actions that are not allowed, by IAM's names; any other error says nothing of that."""
    denied: list[str] = []

    def ask(name: str, **parameters: object) -> Json:
        try:
            return api.call(name, **parameters)
        except NotAllowed:
            denied.append(API_ACTIONS[name].iam_name)
        except CloudError:
            pass
        return {}

    for name, parameters in ABOUT_ANYTHING.items():
        ask(name, **parameters)
    for name, member, key, questions in ABOUT_ONE:
        for record in objects(ask(name, PageSize=1).get(member))[:1]:
            for question in questions:
                ask(question, **{key: text(record.get(key))})
    return denied
