"""Answers about machines: many to a call, and `Gone` only on the positive word of the cloud."""

import asyncio
import math
from collections.abc import Mapping
from itertools import count as count_from

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.interface import MarksMachines
from ccm.cloud.testkit.adapter import FOREIGN_OWNERS, Machine, Owner, Untestable
from ccm.cloud.testkit.gate import NO_ANSWER, Interruption
from ccm.cloud.testkit.harness import OVERLAP_DELAY, Harness, node, node_of
from ccm.errors import CloudError
from ccm.model.cloud import Answer, Gone, Instance, PowerState, Unknown

pytestmark = pytest.mark.asyncio


def check_machine(answer: Answer, machine: Machine, power: PowerState = PowerState.RUNNING) -> None:
    """The answer says of this machine what the adapter knows about it."""
    assert isinstance(answer, Instance)
    assert (answer.provider_id, answer.power) == (machine.provider_id, power)
    for field in ("type", "zone", "region"):
        known = getattr(machine, field)
        assert getattr(answer, field) == known or not known, field
    assert set(answer.addresses) == set(machine.addresses) or not machine.addresses


async def test_a_running_machine_is_described_by_id(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    check_machine(await harness.describe_one(node_of(machine)), machine)
    assert harness.provider.provider_ids.fullmatch(machine.provider_id)


async def test_a_running_machine_is_found_by_name_while_its_node_has_no_id(
    harness: Harness,
) -> None:
    (machine,) = await harness.machines(1)
    check_machine(await harness.describe_one(node(machine.node)), machine)


async def test_an_id_goes_before_a_name(harness: Harness) -> None:
    item, other = await harness.machines(2)
    check_machine(await harness.describe_one(node(other.node, item.provider_id)), item)
    absent = harness.adapter.absent_provider_id()
    assert isinstance(await harness.describe_one(node(other.node, absent)), Gone)


async def test_a_stopped_machine_exists_and_is_off_until_it_is_started(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    await invoke(harness.adapter.stop_machine, machine)
    check_machine(await harness.describe_one(node_of(machine)), machine, PowerState.STOPPED)
    await invoke(harness.adapter.start_machine, machine)
    check_machine(await harness.describe_one(node_of(machine)), machine)


async def test_a_terminated_machine_is_gone(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    await invoke(harness.adapter.terminate_machine, machine)
    answer = await harness.describe_one(node_of(machine))
    assert isinstance(answer, Gone)
    assert answer.evidence
    assert not isinstance(await harness.describe_one(node(machine.node)), Instance)


async def test_a_machine_that_never_existed_is_gone(harness: Harness) -> None:
    answer = await harness.describe_one(node("never", harness.adapter.absent_provider_id()))
    assert isinstance(answer, Gone)
    assert not isinstance(await harness.describe_one(node("never")), Instance)


async def test_a_machine_is_gone_only_while_every_read_says_so(harness: Harness) -> None:
    """Each of the reads that come to `Gone` fails in turn: it was one of the proofs."""
    (ended,) = await harness.machines(1)
    await invoke(harness.adapter.terminate_machine, ended)
    for number in count_from(1):
        harness.gate.interrupt_call(number, Interruption.FAILED)
        try:
            answer = await harness.describe_one(node_of(ended))
        except CloudError:
            answer = Unknown("it failed")
        if not harness.gate.clear_interruption():
            break
        assert isinstance(answer, Unknown), f"call {number} failed and the machine is gone"
    assert isinstance(answer, Gone)


async def test_a_list_of_before_a_machine_was_made_proves_nothing(harness: Harness) -> None:
    """A cloud may answer with what it knew some seconds ago."""
    (old,) = await harness.machines(1)
    await harness.describe([node_of(old)])
    (new,) = await harness.machines(1)
    harness.gate.repeat_answers()
    assert not isinstance(await harness.describe_one(node_of(new)), Gone)
    check_machine(await harness.describe_one(node_of(new)), new)


@pytest.mark.parametrize("by", ["id", "name"])
async def test_machines_on_every_page_of_a_list_are_found(harness: Harness, by: str) -> None:
    machines = await harness.machines(harness.adapter.page_size + 1)
    nodes = [node_of(item) if by == "id" else node(item.node) for item in machines]
    answers = await harness.describe(nodes)
    for machine in machines:
        check_machine(answers[machine.node], machine)


async def test_one_machine_has_one_name_and_others_have_another(harness: Harness) -> None:
    """However its ID is written: a second Node on it is seen by that."""
    item, other = await harness.machines(2)
    machine_of = harness.instances.machine_of
    assert machine_of(item.provider_id) != machine_of(other.provider_id)
    for written in (item.provider_id, *item.aliases):
        answer = await harness.describe_one(node(item.node, written))
        assert isinstance(answer, Instance)
        named = {machine_of(name) for name in (written, answer.provider_id, *answer.aliases)}
        assert machine_of(item.provider_id) in named
        assert machine_of(other.provider_id) not in named
    scheme = item.provider_id.partition("://")[0]
    assert not machine_of(f"{scheme}://no such machine, or a list of them")


async def test_a_node_of_another_cloud_is_unknown(harness: Harness) -> None:
    answer = await harness.describe_one(node("foreign", "another-cloud://machine-1"))
    assert isinstance(answer, Unknown)


@pytest.mark.parametrize("owner", FOREIGN_OWNERS)
async def test_a_machine_without_our_mark_is_no_nodes_however_it_is_found(
    harness: Harness, owner: Owner
) -> None:
    """A kubelet may write any machine's ID into its Node."""
    theirs = await invoke(harness.adapter.create_foreign_machine, "theirs", owner)
    (own,) = await harness.machines(1)
    hostile = node("hostile", theirs.provider_id)
    for asked in (node_of(theirs), hostile, node(theirs.node)):
        answer = await harness.describe_one(asked)
        assert isinstance(answer, Unknown)
    check_machine(await harness.describe_one(node_of(own)), own)
    instances: object = harness.instances
    if isinstance(instances, MarksMachines) and instances.required_marks:
        absent = node("never", harness.adapter.absent_provider_id())
        scheme = absent.provider_id.partition("://")[0]
        odd = node("odd", f"{scheme}://no such machine, or a list of them")
        verdicts: Mapping[str, str] = await harness.call(
            instances.foreign, [hostile, node_of(own), absent, odd, node("x", "other://1")]
        )
        left_out = {name for name, why in verdicts.items() if why}
        assert left_out == {"hostile", "odd", "x"}, "nothing shows that they are the cluster's"
        assert verdicts.keys() - left_out == {own.node}, "of a machine that is not there"


async def test_a_foreign_machine_of_a_nodes_name_takes_no_nodes_place(harness: Harness) -> None:
    (own,) = await harness.machines(1)
    theirs = await invoke(harness.adapter.create_foreign_machine, own.node, Owner.OTHER_CLUSTER)
    if theirs.node != own.node:
        raise Untestable("no two machines of this cloud have one name")
    check_machine(await harness.describe_one(node(own.node)), own)


@pytest.mark.parametrize("rest", ["", "/", "no such machine, or a list of them", "*"])
async def test_an_id_that_names_no_machine_is_unknown(harness: Harness, rest: str) -> None:
    scheme = harness.adapter.absent_provider_id().partition("://")[0]
    answer = await harness.describe_one(node("odd", f"{scheme}://{rest}"))
    assert isinstance(answer, Unknown)


async def test_a_name_that_two_machines_have_is_unknown(harness: Harness) -> None:
    (item,) = await harness.machines(1)
    (twin,) = await harness.machines(1)
    check_machine(await harness.describe_one(node_of(item)), item)
    check_machine(await harness.describe_one(node_of(twin)), twin)
    if twin.node != item.node:
        raise Untestable("no two machines of this cloud have one name")
    assert isinstance(await harness.describe_one(node(item.node)), Unknown)


async def test_one_odd_node_does_not_spoil_the_others(harness: Harness) -> None:
    by_id, by_name, ended = await harness.machines(3)
    await invoke(harness.adapter.terminate_machine, ended)
    absent = harness.adapter.absent_provider_id()
    answers = await harness.describe(
        [
            node("absent", absent),
            node_of(by_id),
            node("foreign", "another-cloud://machine-1"),
            node(by_name.node),
            node("odd", f"{absent}, or a list of them"),
            node_of(ended),
        ]
    )
    check_machine(answers[by_id.node], by_id)
    check_machine(answers[by_name.node], by_name)
    assert isinstance(answers["absent"], Gone)
    assert isinstance(answers[ended.node], Gone)
    assert isinstance(answers["foreign"], Unknown)
    assert isinstance(answers["odd"], Unknown)


async def test_looking_changes_nothing(harness: Harness) -> None:
    machines = await harness.machines(2)
    async with harness.no_write():
        await harness.describe([node(machines[0].node), node_of(machines[1])])
        await harness.describe([])


@pytest.mark.parametrize("how", ["id", "name"])
async def test_nodes_cost_a_call_a_batch(harness: Harness, how: str) -> None:
    batch = harness.instances.batch_size
    machines = await harness.machines(2 * batch + 1)
    # What is read once for all is not counted.
    await harness.describe([node_of(machines[0]), node(machines[1].node)])
    for count in (0, 1, batch, batch + 1, 2 * batch + 1):
        asked = machines[:count]
        start = len(harness.gate.calls)
        answers = await harness.describe(
            [node_of(m) if how == "id" else node(m.node) for m in asked]
        )
        made = len(harness.gate.calls) - start
        reads = harness.adapter.reads_per_batch * math.ceil(count / batch)
        assert made == reads, f"{made} calls for {count} Nodes"
        for machine in asked:
            answer = answers[machine.node]
            assert isinstance(answer, Instance)
            assert answer.provider_id == machine.provider_id, "the answer is another Node's"


async def test_an_absent_machine_does_not_spoil_its_batch(harness: Harness) -> None:
    batch = harness.instances.batch_size
    machines = await harness.machines(batch)
    asked = [node("absent", harness.adapter.absent_provider_id()), *map(node_of, machines)]
    answers = await harness.describe(asked)
    assert isinstance(answers.pop("absent"), Gone)
    assert all(isinstance(answer, Instance) for answer in answers.values())


@pytest.mark.parametrize("how", NO_ANSWER)
async def test_a_failed_call_leaves_only_its_own_nodes_unknown(
    harness: Harness, how: Interruption
) -> None:
    batch = harness.instances.batch_size
    machines = await harness.machines(2 * batch + 1)
    harness.gate.interrupt_call(2, how)
    answers = await harness.describe([node_of(machine) for machine in machines])
    unknown = [answer for answer in answers.values() if isinstance(answer, Unknown)]
    known = [answer for answer in answers.values() if isinstance(answer, Instance)]
    assert 1 <= len(unknown) <= batch
    assert len(known) + len(unknown) == len(machines)


@pytest.mark.parametrize("how", NO_ANSWER)
async def test_when_nothing_could_be_read_nothing_is_gone(
    harness: Harness, how: Interruption
) -> None:
    (machine,) = await harness.machines(1)
    for asked in (node_of(machine), node("absent", harness.adapter.absent_provider_id())):
        harness.gate.interrupt_call(1, how)
        try:
            answer = await harness.describe_one(asked)
        except CloudError:
            continue
        assert isinstance(answer, Unknown)


async def test_questions_are_answered_in_parallel(harness: Harness) -> None:
    harness.gate.delay = OVERLAP_DELAY
    machines = await harness.machines(4)
    answers = await asyncio.gather(
        *(harness.describe_one(node_of(machine)) for machine in machines for _ in range(3))
    )
    wanted = [machine.provider_id for machine in machines for _ in range(3)]
    assert [a.provider_id for a in answers if isinstance(a, Instance)] == wanted
