"""The provider's process ends after any one of its writes: the next one finishes the work.

Injected: the gate performs the chosen call and then cuts the provider off for good. A break after a
read leaves what a break after the write before it left; the conformance kit makes those as well.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.gate import Interruption, KitGate, ProcessKilled
from ccm.model.objects import Node
from ccm.model.service import Service
from ccm.providers.aws.provider import AwsCloud
from tests.providers.aws.proxy import Proxy
from tests.providers.aws.world import Account, asking, node_of, started

MOST = 40  # writes; more means that it makes them without end


class WritesOnly(KitGate):
    """Counts writes, and breaks after one of them."""

    def _begin(self, operation: str, budget: str) -> Interruption | None:
        if operation.startswith("Describe") and self._countdown > 0:
            self._countdown += 1
        return super()._begin(operation, budget)


async def run(account: Account, proxy: Proxy, after: int, work: Callable[[AwsCloud], Any]) -> bool:
    """Start a provider, cut it off after so many writes (0: never); whether it came to the end."""
    gate = WritesOnly(10.0)
    cloud = await started(account, proxy.url, gate=gate)
    try:
        gate.interrupt_call(after, Interruption.KILLED)
        await invoke(work, cloud)
    except ProcessKilled:
        return False
    finally:
        await cloud.close()
    return True


def ensuring(one: Service, hosts: Sequence[Node]) -> Callable[[AwsCloud], Any]:
    return lambda cloud: cloud.load_balancers and cloud.load_balancers.ensure(one, hosts)


def deleting(one: Service) -> Callable[[AwsCloud], Any]:
    return lambda cloud: cloud.load_balancers and cloud.load_balancers.delete(one)


def balancers(account: Account) -> dict[str, tuple[set[tuple[int, int]], set[str]]]:
    """Every balancer with its listeners and hosts; duplicates and strays fail."""
    found: dict[str, tuple[set[tuple[int, int]], set[str]]] = {}
    for one in account.classic_elbs():
        listeners = [description["Listener"] for description in one["ListenerDescriptions"]]
        ports = {(item["LoadBalancerPort"], item["InstancePort"]) for item in listeners}
        hosts = [item["InstanceId"] for item in one["Instances"]]
        assert len(hosts) == len(set(hosts))
        found[one["LoadBalancerName"]] = ports, set(hosts)
    groups = {group["TargetGroupArn"] for group in account.target_groups()}
    for one in account.nlbs():
        assert one["LoadBalancerName"] not in found
        ports, hosts = set(), []
        for item in one["listeners"]:
            arn = item["DefaultActions"][0]["TargetGroupArn"]
            ports.add((item["Port"], one["groups"][arn]["Port"]))
            hosts += one["groups"][arn]["targets"]
            groups.remove(arn)
        found[one["LoadBalancerName"]] = ports, set(hosts)
    assert not groups, "a target group belongs to no balancer"
    return found


def leftovers(account: Account) -> list[str]:
    """Security groups and rules that the cluster's balancers have."""
    groups = account.security_groups()
    rules = [str(rule) for group in groups for rule in group["IpPermissions"]]
    names = [g["GroupName"] for g in groups if g["GroupName"] not in ("default", "nodes")]
    return names + [rule for rule in rules if "kubernetes.io" in rule]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_the_work_on_a_balancer_is_finished_wherever_it_broke_off_injected(
    account: Account, proxy: Proxy, kind: str
) -> None:
    """One of two ports is made, changed to two others and taken away, all broken off."""
    machines = account.launch(2)
    nodes = [node_of(machine) for machine in machines]
    ids = {machine["InstanceId"] for machine in machines}
    for number in count(1):
        assert number < MOST
        name = f"web-{number}"
        before, after = asking(kind, name, 80, 81), asking(kind, name, 81, 82)
        made = await run(account, proxy, number, ensuring(before, nodes[:1]))
        changed = await run(account, proxy, number, ensuring(after, nodes))
        assert await run(account, proxy, 0, ensuring(after, nodes))
        ((ports, hosts),) = balancers(account).values()
        assert (ports, hosts) == ({(81, 30081), (82, 30082)}, ids), f"after call {number}"
        is_gone = await run(account, proxy, number, deleting(after))
        assert await run(account, proxy, 0, deleting(after))
        assert (balancers(account), leftovers(account)) == ({}, []), f"after call {number}"
        if made and changed and is_gone:
            return
