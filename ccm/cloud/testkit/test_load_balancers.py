"""Load balancers: created, read, given other backends, deleted; only ours, and only differences."""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.interface import BatchesReads, SharesBackends
from ccm.cloud.testkit.adapter import FOREIGN_OWNERS, Owner, Untestable
from ccm.cloud.testkit.harness import OVERLAP_DELAY, Harness, node, node_of, port, service
from ccm.cloud.testkit.operations import Owned, owned_lister, read_interrupted_everywhere
from ccm.errors import Refused, RetryAfter
from ccm.model.cloud import UID_BEGIN, OwnedBalancer
from ccm.model.service import Service

pytestmark = pytest.mark.asyncio

MEANWHILE = 0.3  # seconds for what another Service has done at the same time


async def test_a_name_is_of_one_service_for_ever(harness: Harness) -> None:
    name_for = harness.load_balancers.name_for
    name = name_for(service("web"))
    assert name
    assert name_for(service("web", {"a": "b"}, ports=[port(81)])) == name
    assert name_for(service("other")) != name
    await harness.restart()
    assert harness.load_balancers.name_for(service("web")) == name


async def test_where_there_is_no_balancer_none_is_returned(harness: Harness) -> None:
    async with harness.no_write():
        assert await harness.call(harness.load_balancers.get, service()) is None


async def test_a_balancer_is_made_as_asked_and_can_be_reached(harness: Harness) -> None:
    machines = await harness.machines(3)
    asked = service(ports=[port(80), port(443, node_port=30443)])
    backends = [node_of(machine) for machine in machines]
    made = await harness.until_done(harness.load_balancers.ensure, asked, backends)
    await harness.check_balancer(asked, machines)
    assert made.name == harness.load_balancers.name_for(asked)
    assert made.ingress
    assert all(way.ip or way.hostname for way in made.ingress)
    assert await harness.call(harness.load_balancers.get, asked) == made


async def test_what_a_service_has_is_shown_whatever_it_asks_for(harness: Harness) -> None:
    """What a change gave up is taken from its status, also where the next one is refused."""
    await harness.ensure(service(), await harness.machines(1))
    made = await harness.call(harness.load_balancers.get, service())
    assert made
    keys = sorted(await invoke(harness.adapter.annotation_keys))
    asked = [service("web", {key: value}) for key in keys for value in ("odd", "-1", "[")]
    for invalid in (*asked, *(service(**spec) for spec in INVALID)):
        shown = await harness.call(harness.load_balancers.get, invalid)
        assert shown, invalid.raw
        ways = {way.ip for way in shown.ingress}
        assert ways in ({way.ip for way in made.ingress}, {""}), invalid.raw


INVALID: tuple[dict[str, Any], ...] = (
    {"ports": []},
    {"ports": [port(80, "SCTP")]},
    {"ports": [port(80, node_port=0)]},
    {"loadBalancerSourceRanges": ["10.0.0.0/33"]},
    {"loadBalancerIP": "everybody"},
)
"""What most clouds refuse."""


async def test_hosts_are_replaced_and_nothing_else(harness: Harness) -> None:
    machines = await harness.machines(3)
    await harness.ensure(service(), machines[:1])
    for backends in (machines, machines[1:], []):
        other = service(
            ports=[*service().ports, port(81)], loadBalancerSourceRanges=["192.0.2.0/24"]
        )
        nodes = [node_of(machine) for machine in backends]
        await harness.until_done(harness.load_balancers.update_nodes, other, nodes)
        await harness.check_balancer(service(), backends)


async def test_hosts_that_are_taken_from_one_service_stay_those_of_another(
    harness: Harness,
) -> None:
    """As from one that cannot be changed, and leads to a node port that is another's now."""
    machines = await harness.machines(2)
    other = service("other", ports=[port(443, node_port=30443)])
    for asked in (service(), other):
        await harness.ensure(asked, machines)
    balancers = harness.load_balancers
    if isinstance(balancers, SharesBackends):
        await harness.until_done(balancers.withdraw, service())
    else:
        await harness.until_done(balancers.update_nodes, service(), [])
    await harness.check_balancer(other, machines)
    await harness.ensure(service(), machines)


async def test_hosts_of_no_balancer_are_refused(harness: Harness) -> None:
    backends = [node_of(machine) for machine in await harness.machines(1)]
    async with harness.no_write():
        with pytest.raises(Refused):
            await harness.call(harness.load_balancers.update_nodes, service(), backends)


async def test_nodes_without_a_machine_of_this_cloud_are_no_backends(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    odd = [node("new"), node("foreign", "another-cloud://machine-1"), node_of(machine)]
    await harness.until_done(harness.load_balancers.ensure, service(), odd)
    await harness.check_balancer(service(), [machine])
    await harness.until_done(harness.load_balancers.update_nodes, service(), odd[:2])
    await harness.check_balancer(service(), [])


async def test_a_machine_that_ended_does_not_keep_the_others_out(harness: Harness) -> None:
    item, ended, other = await harness.machines(3)
    nodes = [node_of(machine) for machine in (item, ended, other)]
    await harness.ensure(service(), [item])
    await invoke(harness.adapter.terminate_machine, ended)
    await harness.until_done(harness.load_balancers.update_nodes, service(), nodes)
    await harness.check_balancer(service(), [item, other])
    await harness.until_done(harness.load_balancers.ensure, service("second"), nodes)
    await harness.check_balancer(service("second"), [item, other])


async def test_machines_that_end_before_a_write_leaves_keep_no_balancer_away(
    harness: Harness,
) -> None:
    machines = await harness.machines(4)
    nodes, parts = [node_of(machine) for machine in machines], harness.load_balancers
    harness.gate.before_write = partial(harness.adapter.terminate_machine, machines[0])
    await harness.until_done(parts.ensure, service(), nodes)
    await harness.until_done(parts.update_nodes, service(), nodes[:1])
    harness.gate.before_write = partial(harness.adapter.terminate_machine, machines[1])
    await harness.until_done(parts.update_nodes, service(), nodes)
    await harness.check_balancer(service(), machines[2:])


async def test_a_deleted_balancer_leaves_nothing_behind(harness: Harness) -> None:
    before = set(await invoke(harness.adapter.balancer_resources))
    machines = await harness.machines(2)
    asked = service(ports=[port(80), port(443, node_port=30443)])
    await harness.ensure(asked, machines)
    assert set(await invoke(harness.adapter.balancer_resources)) > before
    await harness.until_done(harness.load_balancers.delete, asked)
    assert await harness.observed_balancer(asked) is None
    assert await harness.call(harness.load_balancers.get, asked) is None
    assert set(await invoke(harness.adapter.balancer_resources)) == before


async def test_a_balancer_that_is_wanted_again_while_it_is_deleted_leaves_nothing(
    harness: Harness,
) -> None:
    """The type of a Service may be changed there and back before the cloud is done."""
    before = set(await invoke(harness.adapter.balancer_resources))
    machines = await harness.machines(1)
    await harness.ensure(service(), machines)
    with suppress(RetryAfter):
        await harness.call(harness.load_balancers.delete, service())
    await harness.ensure(service(), machines)
    await harness.until_done(harness.load_balancers.delete, service())
    assert await harness.observed_balancer(service()) is None
    assert set(await invoke(harness.adapter.balancer_resources)) == before


async def test_a_balancer_is_deleted_after_its_backends_ended(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    await harness.ensure(service(), [machine])
    await invoke(harness.adapter.terminate_machine, machine)
    await harness.until_done(harness.load_balancers.delete, service())
    assert await harness.observed_balancer(service()) is None


async def check_owned(harness: Harness, services: Sequence[Service]) -> None:
    """Exactly these are listed as ours."""
    name_for = harness.load_balancers.name_for
    listed = await harness.call(owned_lister(harness).owned)
    assert all(isinstance(item, OwnedBalancer) for item in listed)
    wanted = sorted((name_for(item), item.uid) for item in services)
    found = sorted((item.name, item.service_uid) for item in listed)
    assert [name for name, _ in found] == [name for name, _ in wanted]
    for (_, listed_uid), (_, uid) in zip(found, wanted, strict=True):
        assert listed_uid in (uid, uid[:UID_BEGIN])
    assert {item.service for item in listed} <= {"", *(item.key for item in services)}


async def test_the_balancers_of_the_cluster_are_listed_with_their_services(
    harness: Harness,
) -> None:
    await check_owned(harness, [])
    services = [service("web"), service("shop")]
    for item in services:
        await harness.ensure(item, [])
    await check_owned(harness, services)
    await harness.until_done(harness.load_balancers.delete, services[0])
    await check_owned(harness, services[1:])


async def test_balancers_are_listed_from_all_pages(harness: Harness) -> None:
    services = [service(f"web-{number}") for number in range(harness.more_than_a_page)]
    for item in services:
        await harness.ensure(item, [])
    await check_owned(harness, services)


async def test_a_list_that_broke_off_is_raised_and_not_returned_in_part(harness: Harness) -> None:
    operation = Owned()
    await operation.prepare(harness)
    for number in range(harness.adapter.page_size):
        await harness.ensure(service(f"web-{number}"), [])
    listed = await read_interrupted_everywhere(harness, operation)
    assert len(listed) == harness.adapter.page_size + 1


PORTS = [port(80), port(443, node_port=30443), port(8080, node_port=30808)]


async def test_a_balancer_that_is_right_is_not_written(harness: Harness) -> None:
    backends = [node_of(machine) for machine in await harness.machines(3)]
    parts = harness.load_balancers
    made = await harness.until_done(parts.ensure, service(ports=PORTS), backends)
    async with harness.no_write():
        assert await harness.call(parts.ensure, service(ports=PORTS), backends) == made
        assert await harness.call(parts.ensure, service(ports=PORTS[::-1]), backends[::-1]) == made
        await harness.call(parts.update_nodes, service(ports=PORTS), backends)
        await harness.call(parts.update_nodes, service(ports=PORTS), backends[::-1])


async def test_neither_a_restart_nor_a_fail_over_writes(harness: Harness) -> None:
    backends = [node_of(machine) for machine in await harness.machines(2)]
    await harness.until_done(harness.load_balancers.ensure, service(), backends)
    await harness.restart()
    async with harness.no_write():
        await harness.call(harness.load_balancers.ensure, service(), backends)
        await harness.call(harness.load_balancers.update_nodes, service(), backends)


async def test_a_balancer_is_read_before_it_is_written(harness: Harness) -> None:
    backends = [node_of(machine) for machine in await harness.machines(2)]
    parts = harness.load_balancers
    for work in (
        lambda: harness.until_done(parts.ensure, service(), backends[:1]),
        lambda: harness.until_done(parts.ensure, service(ports=PORTS), backends[:1]),
        lambda: harness.until_done(parts.update_nodes, service(), backends),
        lambda: harness.until_done(parts.delete, service()),
    ):
        start = len(harness.gate.calls)
        await work()
        first = harness.gate.calls[start]
        assert harness.writes_since(start), "there was something to write"
        assert not harness.adapter.is_write(first.operation, first.budget), "the first is a write"


async def test_a_balancer_that_is_gone_is_deleted_without_a_write(harness: Harness) -> None:
    async with harness.no_write():
        await harness.call(harness.load_balancers.delete, service())
    await harness.ensure(service(), [])
    await harness.until_done(harness.load_balancers.delete, service())
    async with harness.no_write():
        await harness.call(harness.load_balancers.delete, service())


@pytest.mark.parametrize("owner", Owner)
async def test_a_balancer_of_our_name_without_our_mark_is_not_touched(
    harness: Harness, owner: Owner
) -> None:
    backends = [node_of(machine) for machine in await harness.machines(1)]
    parts = harness.load_balancers
    name = parts.name_for(service())
    await invoke(harness.adapter.create_foreign_balancer, name, service(), owner)
    async with harness.no_write():
        assert await harness.call(parts.get, service()) is None
        for method, *rest in (
            (parts.ensure, backends),
            (parts.update_nodes, backends),
            (parts.delete,),
        ):
            with pytest.raises(Refused):
                await harness.call(method, service(), *rest)


@pytest.mark.parametrize("owner", FOREIGN_OWNERS)
async def test_a_balancer_beside_ours_is_not_touched(harness: Harness, owner: Owner) -> None:
    machines = await harness.machines(2)
    name = harness.load_balancers.name_for(service("other"))
    await invoke(harness.adapter.create_foreign_balancer, name, service("other"), owner)
    async with harness.no_change():
        await harness.ensure(service(), machines[:1])
        await harness.ensure(service(ports=[port(81)]), machines)
        await harness.until_done(harness.load_balancers.delete, service())


@pytest.mark.parametrize("owner", FOREIGN_OWNERS)
async def test_a_balancer_of_another_is_not_listed_as_ours(harness: Harness, owner: Owner) -> None:
    owned = owned_lister(harness).owned
    name = harness.load_balancers.name_for(service("other"))
    await invoke(harness.adapter.create_foreign_balancer, name, service("other"), owner)
    await harness.ensure(service(), [])
    names = [item.name for item in await harness.call(owned)]
    assert names == [harness.load_balancers.name_for(service())]


class Meanwhile:
    """Starts something else right before a write, the `number`-th from now on."""

    def __init__(self, harness: Harness, number: int, what: Callable[[], Awaitable[Any]]) -> None:
        self._gate, self._left, self._what = harness.gate, number, what
        self._task: asyncio.Task[Any] | None = None
        self._gate.before_write = self._on_write

    async def _on_write(self) -> None:
        self._left -= 1
        if self._left:
            self._gate.before_write = self._on_write
            return
        self._task = asyncio.ensure_future(self._what())
        await asyncio.wait([self._task], timeout=MEANWHILE)  # it may have to wait for us

    async def end(self) -> bool:
        """Whether there was such a write."""
        self._gate.before_write = None
        if self._task:
            await self._task
        return self._task is not None


@pytest.mark.parametrize("is_deleted", [False, True], ids=["changed", "deleted"])
async def test_what_is_done_meanwhile_for_another_service_is_not_undone(
    harness: Harness, is_deleted: bool
) -> None:
    """Between any two writes, by which clouds keep what several Services share."""
    parts = harness.load_balancers
    if not asyncio.iscoroutinefunction(parts.ensure):
        raise Untestable("the provider's threads cannot be interleaved")
    machines = await harness.machines(1)
    nodes, other = (
        [node_of(machine) for machine in machines],
        service("other", ports=[port(81, node_port=30081)]),
    )
    changed, was_there = service(ports=[port(82, node_port=30082)]), True
    for number in itertools.count(1):
        if not was_there:
            break
        await harness.ensure(service(), machines)
        later = Meanwhile(harness, number, partial(harness.until_done, parts.ensure, other, nodes))
        if is_deleted:
            await harness.until_done(parts.delete, service())
        else:
            await harness.until_done(parts.ensure, changed, nodes)
        was_there = await later.end()
        if was_there:
            await harness.check_balancer(other, machines)
            await harness.until_done(parts.delete, other)
        if not is_deleted:
            await harness.check_balancer(changed, machines)


SERVICES = [
    service(f"web-{number}", ports=[port(80, node_port=30100 + number)]) for number in range(5)
]


async def test_reads_that_are_made_together_cost_a_call_a_batch(harness: Harness) -> None:
    parts = harness.load_balancers
    if not isinstance(parts, BatchesReads):
        raise Untestable("this provider reads each load balancer by itself")
    backends = [node_of(machine) for machine in await harness.machines(2)]
    many = [service(f"web-{number}") for number in range(2 * parts.batch_size + 1)]
    for item in many:
        await harness.until_done(parts.ensure, item, backends)
    for count in (1, parts.batch_size, parts.batch_size + 1, len(many)):
        for work in (parts.ensure, parts.update_nodes):
            start = len(harness.gate.calls)
            async with harness.no_write():
                await asyncio.gather(*(harness.call(work, item, backends) for item in many[:count]))
            made = len(harness.gate.calls) - start
            assert made == math.ceil(count / parts.batch_size), f"{made} calls for {count} Services"


async def test_services_are_served_in_parallel(harness: Harness) -> None:
    harness.gate.delay = OVERLAP_DELAY
    machines = await harness.machines(2)
    before = set(await invoke(harness.adapter.balancer_resources))
    await asyncio.gather(*(harness.ensure(item, machines) for item in SERVICES))
    for item in SERVICES:
        await harness.check_balancer(item, machines)
    delete = harness.load_balancers.delete
    update = harness.load_balancers.update_nodes
    await asyncio.gather(
        *(harness.until_done(delete, item) for item in SERVICES[:2]),
        *(harness.until_done(update, item, [node_of(machines[0])]) for item in SERVICES[2:]),
    )
    for item in SERVICES[:2]:
        assert await harness.observed_balancer(item) is None
    for item in SERVICES[2:]:
        await harness.check_balancer(item, machines[:1])
    await asyncio.gather(*(harness.until_done(delete, item) for item in SERVICES))
    assert set(await invoke(harness.adapter.balancer_resources)) == before
