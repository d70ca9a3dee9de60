"""Lists that mix up records: in one answer one has another's name, ID or mark, or stands twice."""

import os
from contextlib import suppress
from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import Machine
from ccm.cloud.testkit.gate import MixedUpAnswer
from ccm.cloud.testkit.harness import Harness, node_of, port, service
from ccm.cloud.testkit.test_routes import make_routes
from ccm.errors import CloudError
from ccm.model.cloud import Gone

pytestmark = pytest.mark.asyncio

IS_THOROUGH = bool(os.environ.get("CCM_LONG"))
"""Whether every field of every record is mixed up with that of every other; it takes minutes."""
OPERATIONS = ("ensure", "change", "update_nodes", "delete")


def names_of(machine: Machine) -> tuple[str, str]:
    return machine.node, machine.provider_id.rpartition("/")[2]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_answer_that_mixes_up_records_costs_no_other_its_balancer(
    harness: Harness, operation: str
) -> None:
    """What is done for one Service leaves another's as it was, once all answers are right again."""
    theirs, own, changed = (
        service(name, ports=[port(number, node_port=30000 + number)])
        for name, number in (("theirs", 80), ("own", 443), ("own", 444))
    )
    machines = await harness.machines(3)
    backends = [node_of(machine) for machine in machines]
    made = await harness.until_done(harness.load_balancers.ensure, theirs, backends)
    before = set(await invoke(harness.adapter.balancer_resources))
    names = [text for it in (theirs, own) for text in (harness.load_balancers.name_for(it), it.uid)]
    turn = OPERATIONS.index(operation)
    mixed = MixedUpAnswer(names, len(OPERATIONS), turn, is_thorough=IS_THOROUGH)
    while mixed.is_next():
        balancers = harness.load_balancers
        with suppress(CloudError):  # its own loss may last
            await harness.until_done(balancers.ensure, own, backends)
        await harness.restart()
        balancers = harness.load_balancers
        calls: dict[str, list[tuple[Any, ...]]] = {  # with a mixed-up answer, and then without
            "ensure": [(balancers.ensure, own, backends)] * 2,
            "change": [(balancers.ensure, changed, backends)] * 2,
            "update_nodes": [(balancers.update_nodes, own, it) for it in (backends[:2], backends)],
            "delete": [(balancers.delete, own)] * 2,
        }
        first, again = calls[operation]
        harness.gate.spoil = mixed
        with suppress(CloudError):
            await harness.call(*first)
        harness.gate.spoil = None
        with suppress(CloudError):
            await harness.until_done(*again)
        await harness.check_balancer(theirs, machines)
        await harness.restart()
        found = await harness.call(harness.load_balancers.get, theirs)
        assert found is not None, mixed.last
        assert found.ingress == made.ingress, mixed.last
        assert before <= set(await invoke(harness.adapter.balancer_resources)), mixed.last


async def test_an_answer_that_mixes_up_machines_makes_none_gone(harness: Harness) -> None:
    """Also where one has ended: the other's state is not its own."""
    *machines, ended = await harness.machines(3)
    await invoke(harness.adapter.terminate_machine, ended)
    nodes = [node_of(machine) for machine in (*machines, ended)]
    names = [name for machine in (*machines, ended) for name in names_of(machine)]
    mixed = MixedUpAnswer(names, is_thorough=IS_THOROUGH)
    while mixed.is_next():
        await harness.restart()
        harness.gate.spoil = mixed
        answers = await harness.describe(nodes)
        gone = [name for name, answer in answers.items() if isinstance(answer, Gone)]
        assert not {*gone} - {ended.node}, mixed.last


async def test_an_answer_that_mixes_up_records_costs_no_other_its_route(harness: Harness) -> None:
    """What is created for a Node, listed and deleted, by what the list says, is its own."""
    own, *others = await harness.machines(3)
    made, cidr = await make_routes(harness, others), "10.244.99.0/24"
    nodes = [node_of(machine) for machine in (own, *others)]
    names = [name for machine in (own, *others) for name in names_of(machine)]
    mixed = MixedUpAnswer([cidr, *made.values(), *names], is_thorough=IS_THOROUGH)
    while mixed.is_next():
        await harness.restart()
        harness.gate.spoil = mixed
        with suppress(CloudError):
            await harness.until_done(harness.routes.create, nodes[0], cidr)
            for route in await harness.call(harness.routes.list, nodes):
                if route.cidr == cidr:
                    await harness.until_done(harness.routes.delete, route)
        kept = {(it.cidr, it.provider_id) for it in await invoke(harness.adapter.list_routes)}
        current = {(made[machine.node], machine.provider_id) for machine in others}
        assert current <= kept, mixed.last
