"""How many calls instances are registered by."""

import pytest

from ccm.providers.aws.elb.calls import instance_calls


@pytest.mark.parametrize(
    ("name", "member", "number", "sizes"),
    [
        ("elb:RegisterInstancesWithLoadBalancer", "Instances", 250, [250]),
        ("elb:RegisterInstancesWithLoadBalancer", "Instances", 0, []),
        ("elbv2:RegisterTargets", "Targets", 250, [100, 100, 50]),
        ("elbv2:DeregisterTargets", "Targets", 0, []),
    ],
)
def test_a_classic_balancer_takes_all_instances_at_once_and_a_target_group_a_hundred(
    name: str, member: str, number: int, sizes: list[int]
) -> None:
    calls = instance_calls(name, {}, member, "Id", (f"i-{one:08x}" for one in range(number)))
    assert [len(call.parameters[member]) for call in calls] == sizes
