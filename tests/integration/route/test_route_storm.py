"""Nodes that change while calls are under way and fail: no right route goes, and it settles."""

import asyncio
import random
from collections.abc import Sequence
from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from ccm.errors import CloudError, Denied, Refused, Throttled
from ccm.model.cloud import Route
from ccm.model.objects import Node
from tests.integration.route.cloud import Entry, FakeRoutes
from tests.integration.route.world import LIMITS, World, world
from tests.support.nodes import (
    Tweak,
    changed,
    created,
    network_condition,
    node,
    routed,
    with_provider_id,
)
from tests.support.properties import examples
from workers.route.pod_cidrs import PodCidrIndex

NAMES = [f"n{number}" for number in range(8)]
NETWORKS = [f"10.244.{number}.0/24" for number in range(10)]


class StormyRoutes(FakeRoutes):
    """A cloud in which every call takes its time, may fail, and lets the cluster change."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.is_by_network = seed % 2 == 1
        self.world: World | None = None
        self.calls_left = 60  # of which anything may fail or change something

    async def create(self, node: Node, cidr: str) -> None:
        network = ip_network(cidr)
        self.surprises += [
            f"{cidr} to {node.name} while {entry.id} leads to {entry.machine}"
            for entry in self.entries.values()
            if ip_network(entry.cidr) == network and f"fake://{entry.machine}" != node.provider_id
        ]
        await super().create(node, cidr)

    async def delete(self, route: Route) -> None:
        self._check(self.entries.get(route.id))
        await super().delete(route)

    def _check(self, entry: Entry | None) -> None:
        """Nothing is deleted that leads to a machine whose Node has the network by right."""
        assert self.world
        pod_cidrs = self.world.controller._state.pod_cidrs
        for cidrs in pod_cidrs if entry else ():
            assert entry
            is_its_machine = cidrs.node.provider_id == f"fake://{entry.machine}"
            network = ip_network(entry.cidr)
            is_its_network = network in cidrs.networks and not pod_cidrs.taken_by(cidrs, network)
            if is_its_machine and is_its_network:
                self.surprises.append(f"{entry} was right and was to be deleted")

    async def _called(self, operation: str) -> None:
        self.pause = self.random.randrange(4)
        await super()._called(operation)
        if self.calls_left > 0:
            self.calls_left -= 1
            self._change_something()
            self._fail_perhaps(operation)

    def _change_something(self) -> None:
        assert self.world
        if self.random.random() < 0.5:
            change(self.world, self.random)
            self.world.feed()

    def _fail_perhaps(self, operation: str) -> None:
        if self.random.random() < 0.3:
            failures = [CloudError("500"), Denied("403"), Throttled("429", 0.0)]
            if operation == "create":
                failures.append(Refused("full"))
            raise self.random.choice(failures)


def aged(name: str) -> Tweak:
    """None is as old as another one, of which the first to have a route would keep it."""
    return created(f"2026-01-01T00:00:{NAMES.index(name):02}Z")


def of_age(name: str, cidr: str) -> Node:
    return routed(name, cidr, tweaks=(aged(name),))


def change(w: World, chance: random.Random) -> None:
    """One Node comes, goes, is initialized, or gets another network."""
    name = chance.choice(NAMES)
    there = w.cluster.nodes.get(name)
    free = chance.choice(NETWORKS)
    if there is None:
        new = node(aged(name), lambda raw: raw["spec"].update(podCIDRs=[free]), name=name)
        w.cluster.put(new if chance.random() < 0.5 else of_age(name, free))
    elif not there.provider_id:
        w.cluster.put(changed(there, with_provider_id(f"fake://{name}")))
    elif chance.random() < 0.5:
        w.cluster.remove("Node", name)
    else:
        w.cluster.put(changed(there, lambda raw: raw["spec"].update(podCIDRs=[free])))


async def storm(seed: int) -> None:
    cloud = StormyRoutes(seed)
    first: Sequence[Node] = [of_age(name, NETWORKS[n]) for n, name in enumerate(NAMES[:5])]
    async with world(*first, cloud=cloud) as w:
        cloud.world = w
        await w.settle()
        cloud.calls_left = 0
        w.cluster.put(routed("always", "10.244.99.0/24"))
        for _ in range(5):
            await w.retry()
            await w.full_pass()
        assert w.failures == {}
        check(w)


def check(w: World) -> None:
    names = w.cluster.nodes
    pod_cidrs = PodCidrIndex(LIMITS, (w.cluster.node(name) for name in names))
    wanted = {}
    for cidrs in pod_cidrs:
        (network,) = cidrs.networks
        if cidrs.node.provider_id and not pod_cidrs.taken_by(cidrs, network):
            wanted[str(network)] = cidrs.node.name
            assert network_condition(cidrs.node)["status"] == "False"
    contested = {cidr for cidr in w.cloud.routes if cidr not in wanted}
    assert wanted.items() <= w.cloud.routes.items()
    assert all(pod_cidrs.nodes_with(ip_network(cidr)) for cidr in contested)


@given(st.integers(0, 2**32))
@examples(150)
def test_a_storm_of_changes_and_failures_settles(seed: int) -> None:
    asyncio.run(storm(seed))
