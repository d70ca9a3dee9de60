"""Every API action that this provider calls, with the budget that it spends, in one table.

The quotas that the supervisor gets and the IAM policy come from here; an action that is not in
the table cannot be called.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ccm.cloud.interface import Quota

EC2_DESCRIBE = "ec2-describe"
EC2_DESCRIBE_BY_ID = "ec2-describe-by-id"
EC2_MUTATE = "ec2-mutate"
EC2_RESOURCE = "ec2-resource-intensive"
EC2_TAG = "ec2-tag"
ELB = "elb"
ELBV2 = "elbv2"

QUOTAS: Mapping[str, Quota] = {
    EC2_DESCRIBE: Quota(per_second=20.0, burst=100),
    EC2_DESCRIBE_BY_ID: Quota(per_second=10.0, burst=50),
    EC2_MUTATE: Quota(per_second=5.0, burst=50),
    EC2_RESOURCE: Quota(per_second=5.0, burst=50),
    EC2_TAG: Quota(per_second=5.0, burst=50),
    ELB: Quota(per_second=10.0, burst=40),
    ELBV2: Quota(per_second=10.0, burst=40),
}
"""What an account may do by default in one region: refill and size of each class's bucket.

EC2 has a bucket for each of its actions: reads 20 a second and 100 at once, but 10 and 50 without
filter and pages, as ours by ID are; writes 5 and 50, rules of security groups as well. A class here
has several actions and still takes no more than one may.
https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html

Elastic Load Balancing has 10 a second and 40 at once for all calls of one version of its API
together, reads and writes, so they are one class here: priorities say who goes first, and no token
lies idle in an unused class. Inside of that AWS has 4 and 20 for registering targets; as
each of these calls follows four reads or more, they stay below it by themselves.
https://docs.aws.amazon.com/elasticloadbalancing/latest/userguide/elb-api-throttling.html
"""


@dataclass(frozen=True, slots=True)
class ApiAction:
    """One action of one AWS service, as botocore and IAM name it."""

    service: str
    operation: str
    budget: str
    is_write: bool

    @property
    def iam_name(self) -> str:
        """Its name in an IAM policy."""
        prefix = "ec2" if self.service == "ec2" else "elasticloadbalancing"
        return f"{prefix}:{self.operation}"


_READS = {
    EC2_DESCRIBE: """
        DescribeAvailabilityZones DescribeRouteTables DescribeSecurityGroups DescribeSubnets
    """,
    EC2_DESCRIBE_BY_ID: """
        DescribeAddresses DescribeInstances DescribeInstanceTopology DescribeVolumes
    """,
    ELB: """
        DescribeLoadBalancerAttributes DescribeLoadBalancers DescribeTags
    """,
    ELBV2: """
        DescribeListeners DescribeLoadBalancerAttributes DescribeLoadBalancers
        DescribeTags DescribeTargetGroupAttributes DescribeTargetGroups
        DescribeTargetHealth
    """,
}

_WRITES = {
    EC2_MUTATE: """
        CreateRoute CreateSecurityGroup DeleteRoute DeleteSecurityGroup
        ModifyInstanceAttribute ModifyNetworkInterfaceAttribute ReplaceRoute
    """,
    EC2_RESOURCE: """
        AuthorizeSecurityGroupIngress RevokeSecurityGroupIngress
        UpdateSecurityGroupRuleDescriptionsIngress
    """,
    EC2_TAG: "CreateTags DeleteTags",
    ELB: """
        AddTags ApplySecurityGroupsToLoadBalancer AttachLoadBalancerToSubnets
        ConfigureHealthCheck CreateLoadBalancer CreateLoadBalancerListeners
        CreateLoadBalancerPolicy DeleteLoadBalancer DeleteLoadBalancerListeners
        DeregisterInstancesFromLoadBalancer DetachLoadBalancerFromSubnets
        ModifyLoadBalancerAttributes RegisterInstancesWithLoadBalancer
        SetLoadBalancerListenerSSLCertificate SetLoadBalancerPoliciesForBackendServer
        SetLoadBalancerPoliciesOfListener
    """,
    ELBV2: """
        AddTags CreateListener CreateLoadBalancer CreateTargetGroup DeleteListener
        DeleteLoadBalancer DeleteTargetGroup ModifyListener ModifyLoadBalancerAttributes
        ModifyTargetGroup ModifyTargetGroupAttributes SetIpAddressType SetSecurityGroups
        SetSubnets
        DeregisterTargets RegisterTargets
    """,
}

API_ACTIONS: Mapping[str, ApiAction] = {
    f"{action.service}:{action.operation}": action
    for is_write, table in ((False, _READS), (True, _WRITES))
    for budget, operations in table.items()
    for operation in operations.split()
    for action in (ApiAction(budget.partition("-")[0], operation, budget, is_write),)
}
"""By service and operation, as `ec2:DescribeInstances`."""
