"""What kubelets claim, and what they write again and again, costs others nothing."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from ccm.cloud.interface import NOT_LOOKED
from ccm.decide.budget import READ_PAUSE, READS
from ccm.errors import CloudError
from ccm.model.cloud import Instance, Unknown
from ccm.model.objects import UNINITIALIZED_TAINT, Node
from tests.support.cloud import Inventory, MarkedMachines, Named, ProvingMachines
from tests.support.nodes import Tweak, created, with_provider_id
from tests.support.waiting import until
from workers.machines import RECHECK, ROUND_PAUSE, ROUNDS
from workers.service.backends import CHANGE_PAUSE, CHANGES

from .objects import (
    EXCLUDED,
    KEY,
    NO_PROVIDER_ID,
    being_deleted,
    finalized,
    node,
    service,
    with_address,
    with_taint,
)
from .world import World, running_with, updates

pytestmark = pytest.mark.virtual_time

N1, N2, N3 = node("n1"), node("n2"), node("n3")
BOTH = ("n1", "n2")
UNINITIALIZED = with_taint(UNINITIALIZED_TAINT)


def again(turn: int) -> Tweak:
    """Another object of its name."""
    return lambda raw: raw["metadata"].update(uid=f"{turn}")


async def register_again(w: World, times: int, every: float) -> None:
    """A Node is deleted and comes back, so many times."""
    for turn in range(times):
        w.cluster.remove("Node", "n1")
        await asyncio.sleep(every / 2)
        w.cluster.put(node("n1", again(turn)))
        await asyncio.sleep(every / 2)
    await w.rest()


async def test_a_newer_node_on_the_machine_of_another_is_no_backend() -> None:
    old, new = created("2026-01-01T00:00:00Z"), created("2026-01-02T00:00:00Z")
    victim = node("n1", old, with_provider_id("fake://n1"))
    hostile = node("0-hostile", new, with_provider_id("fake://n1"))
    async with running_with(victim, N2, service(name="a")) as w:
        await w.put(hostile)
        await w.rest()
        assert updates(w) == []
        await w.remove("Node", "n1")
        await w.rest()
        assert updates(w) == [("a", "0-hostile", "n2")]


async def test_of_two_nodes_on_one_machine_the_one_that_the_cloud_names_is_the_backend() -> None:
    """A kubelet may write any provider ID before the machine's own Node is there."""
    old, new = created("2026-01-01T00:00:00Z"), created("2026-01-02T00:00:00Z")
    hostile, owner = (
        node(name, age, with_provider_id("fake://n1")) for name, age in (("0", old), ("n1", new))
    )
    machines = Inventory()
    machines.answers = dict.fromkeys(["0", "n1"], Instance("fake://n1", names=("n1.example",)))
    async with running_with(hostile, service(), instances=machines) as w:
        await w.rest()
        await w.put(owner)
        await w.rest()
        assert updates(w)[-1] == ("web", "n1")


@pytest.mark.parametrize("why", ["of another region", "label managed: the machine is not Azure's"])
@pytest.mark.parametrize("is_there_first", [False, True])
async def test_a_claim_about_which_the_cloud_cannot_be_asked_takes_no_machine(
    why: str, is_there_first: bool
) -> None:
    """Of an older Node, whose kubelet names the machine, or describes its Node, in such a way."""
    old, new = created("2026-01-01T00:00:00Z"), created("2026-01-02T00:00:00Z")
    owner, claim = node("n1", new), node("z", old, with_provider_id("fake://n1"))
    machines = Inventory()
    machines.answers = {"z": Unknown(why), "n1": Instance("fake://n1", names=("n1",))}
    before = claim if is_there_first else node("z", old, NO_PROVIDER_ID)
    async with running_with(owner, before, service(), instances=machines) as w:
        await w.put(claim)
        await asyncio.sleep(2 * RECHECK)
        await w.rest()
        (record,) = w.balancers.records.values()
        assert [name for name, _ in record.backends] == ["n1"]


@pytest.mark.parametrize("is_shared", [False, True])
async def test_an_older_node_takes_no_machine_that_another_one_has(is_shared: bool) -> None:
    """Also where the cloud knows neither by its name: it may be older than those that join."""
    old, new = created("2026-01-01T00:00:00Z"), created("2026-01-02T00:00:00Z")
    newest = node("1", created("2026-01-03T00:00:00Z"), with_provider_id("fake://n1"))
    machines = Inventory()
    machines.answers = dict.fromkeys(["0", "1", "n1"], Instance("fake://n1", names=("vm-7",)))
    idle, *others = node("0", old, NO_PROVIDER_ID), *([newest] if is_shared else [])
    async with running_with(node("n1", new), idle, *others, service(), instances=machines) as w:
        await asyncio.sleep(2 * RECHECK)
        await w.put(node("0", old, with_provider_id("fake://n1")))
        await asyncio.sleep(2 * RECHECK)
        await w.rest()
        assert updates(w) == []
        await w.remove("Node", "n1")
        await w.rest()
        assert updates(w) == [("web", "0")]


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(CloudError("boom"), id="fails"),
        pytest.param(Unknown("no answer"), id="unknown"),
        pytest.param(Instance("fake://n1", names=("0",)), id="mixed-up"),
    ],
)
async def test_an_owner_that_the_cloud_names_later_is_the_backend_all_the_same(
    failure: CloudError | Unknown | Instance,
) -> None:
    """One call about the machine that two Nodes claim has no answer, or that of another machine."""
    old, new = created("2026-01-01T00:00:00Z"), created("2026-01-02T00:00:00Z")
    hostile, owner = (
        node(name, age, with_provider_id("fake://n1")) for name, age in (("0", old), ("n1", new))
    )
    machines = Inventory()
    if isinstance(failure, CloudError):
        machines.failures = [failure]
    machines.answers = dict.fromkeys(["0", "n1"], failure)
    async with running_with(hostile, service(), instances=machines) as w:
        await w.put(owner)
        await until(lambda: machines.reads)
        machines.answers = dict.fromkeys(["0", "n1"], Instance("fake://n1", names=("n1.example",)))
        await asyncio.sleep(2 * RECHECK)
        await w.rest()
        assert updates(w)[-1] == ("web", "n1")


async def test_a_node_is_a_backend_while_whose_the_machine_of_others_is_cannot_be_asked() -> None:
    class Machines(MarkedMachines):
        async def describe(self, objects: Sequence[Named]) -> Mapping[str, Any]:
            raise CloudError("boom")

    hostile = node("0", with_provider_id("fake://n1"))
    async with running_with(N1, N2, service(), instances=Machines({})) as w:
        await w.rest()
        await w.put(hostile, N3)
        await asyncio.sleep(2 * RECHECK)
        assert "n3" in updates(w)[-1]


async def test_a_service_that_changes_while_no_machine_can_be_asked_about_has_its_back_off() -> (
    None
):
    """A new process has to wait for that: each try was followed by the next one."""
    machines = MarkedMachines({})
    machines.failures = [CloudError("boom")] * 1000
    async with running_with(N1, instances=machines) as w:
        await asyncio.sleep(1.0)
        w.cluster.put(service())
        for _ in range(1000):
            await asyncio.sleep(0)
        assert w.queue.failed == [KEY]
        machines.failures = []
        await asyncio.sleep(60.0)
        await w.rest()
        assert w.balancers.named("ensure")


async def test_a_node_that_registers_while_no_machine_can_be_asked_about_keeps_no_other_out() -> (
    None
):
    machines = MarkedMachines({})
    async with running_with(N1, N2, instances=machines) as w:
        machines.failures = [CloudError("boom")] * 1000
        await w.put(N3, service())
        await asyncio.sleep(10.0)
        assert w.balancers.named("ensure") == [("ensure", "web", "n1", "n2")]
        machines.failures = []
        await asyncio.sleep(10.0)
        await w.rest()
        assert updates(w) == [("web", "n1", "n2", "n3")]


async def test_when_most_nodes_register_again_while_no_machine_can_be_asked_about_all_stay() -> (
    None
):
    machines = MarkedMachines({})
    async with running_with(N1, N2, N3, service(), instances=machines) as w:
        machines.failures = [CloudError("boom")] * 1000
        for name in BOTH:
            w.cluster.remove("Node", name)
            w.cluster.put(node(name, again(1)))
        await asyncio.sleep(60.0)
        assert updates(w) == []


async def test_a_node_on_a_foreign_machine_is_no_backend_and_keeps_no_other_out() -> None:
    machines = MarkedMachines({"0-hostile": "machine 0 does not belong to this cluster"})
    hostile, own, late = (
        node(name, with_provider_id(f"fake://{name}")) for name in ("0-hostile", "n1", "n2")
    )
    async with running_with(hostile, own, service(), instances=machines) as w:
        await until(lambda: w.balancers.named("ensure"))
        assert {call[2:] for call in w.balancers.named("ensure")} == {("n1",)}
        machines.failures = [CloudError("boom")]
        await w.put(late)
        await until(lambda: updates(w))
        assert updates(w) == [("web", "n1", "n2")]


@pytest.mark.parametrize("listed", [BOTH, ("n1",)])
async def test_one_answer_without_marks_takes_no_node_from_a_new_process(
    listed: Sequence[str],
) -> None:
    """It has asked about all Nodes at once, and would give each Service no backends."""

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            answer, lacking = await super().foreign(nodes), self.lacking
            self.lacking = {}
            return {name: why for name, why in answer.items() if name in listed or not lacking}

    machines = Machines(dict.fromkeys(BOTH, "lacks the mark of the cluster"))
    async with running_with(N1, N2, service(), instances=machines) as w:
        await until(lambda: w.balancers.named("ensure"))
        assert {call[2:] for call in w.balancers.named("ensure")} == {BOTH}


@pytest.mark.parametrize("joins", [False, True])
async def test_one_answer_without_the_marks_of_some_leaves_none_out(joins: bool) -> None:
    """They were behind no load balancer for a minute."""

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            answer = await super().foreign(nodes)
            if "n2" in {node.name for node in nodes}:
                self.lacking = {}
            return answer

    machines = Machines({"n2": "lacks the mark of the cluster"})
    async with running_with(N1, *(() if joins else (N2,)), service(), instances=machines) as w:
        await until(lambda: w.balancers.named("ensure"))
        await w.put(N2)
        await w.rest()
        (record,) = w.balancers.records.values()
        assert sorted(name for name, _ in record.backends) == [*BOTH]


async def test_answers_without_any_marks_take_no_node_however_many_they_are() -> None:
    """As of a cloud that has lost them, or of marks in the flag that no machine has."""
    asked = list[int]()

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            asked.append(len(nodes))
            return await super().foreign(nodes)

    machines = Machines(dict.fromkeys(BOTH, "lacks the mark of the cluster"))
    going = service(finalized, being_deleted, name="going")
    async with running_with(N1, N2, service(), going, instances=machines) as w:
        await asyncio.sleep(10 * RECHECK)
        assert w.balancers.calls == [("delete", "going")]
        assert len(asked) <= 12
        machines.lacking = {}
        await asyncio.sleep(3 * RECHECK)
        await w.rest()
        assert {call[2:] for call in w.balancers.named("ensure")} == {BOTH}


async def test_nodes_that_register_for_ever_hold_up_no_service() -> None:
    """Of each the cloud is asked whose its machine is; who comes later is not waited for."""

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            await asyncio.sleep(0.3)
            return await super().foreign(nodes)

    async with running_with(N1, instances=Machines({})) as w:
        w.cluster.put(service())
        for number in range(200):
            w.cluster.put(node(f"x{number}", with_provider_id(f"fake://x{number}")))
            await asyncio.sleep(0.05)
        assert w.balancers.named("ensure")


async def test_a_node_that_is_left_out_is_asked_about_again_in_a_while() -> None:
    """Not with each new one: thousands of them would be many calls each time."""
    asked = list[str]()

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            asked.extend(one.name for one in nodes)
            return await super().foreign(nodes)

    hostile = node("0-hostile", with_provider_id("fake://0"))
    async with running_with(N1, hostile, instances=Machines({"0-hostile": "not ours"})) as w:
        for number in range(200):
            w.cluster.put(node(f"x{number}", with_provider_id(f"fake://x{number}")))
            await asyncio.sleep(1.0)
        await w.rest()
        assert len({*asked}) == 202
        assert 3 <= asked.count("0-hostile") <= 5


async def test_a_kubelet_that_changes_its_address_for_ever_costs_few_updates() -> None:
    """Each is a call for every Service; what it is in the end is what the cloud gets."""
    async with running_with(node("n1", with_address("10.9.0.0")), N2, service()) as w:
        await w.rest()
        for turn in range(600):
            address = f"10.9.{turn // 250}.{turn % 250}"
            w.cluster.put(node("n1", with_address(address)))
            await asyncio.sleep(0.1)
        await w.rest()
        assert len(updates(w)) <= CHANGES + 1
        w.cluster.put(N3)
        await w.rest()
        assert updates(w)[-1] == ("web", "n1", "n2", "n3")
        await asyncio.sleep(CHANGE_PAUSE + 1.0)
        await w.rest()
        (last,) = (it for it in w.controller._backends.current().nodes if it.name == "n1")
        assert last.addresses[0]["address"] == address
        assert len(updates(w)) <= CHANGES + 3


async def test_a_kubelet_that_leaves_the_backends_and_comes_back_for_ever_costs_few_updates() -> (
    None
):
    """It may write the label that excludes its Node."""
    async with running_with(N1, N2, service()) as w:
        await w.rest()
        for turn in range(600):
            w.cluster.put(node("n1", *([EXCLUDED] if turn % 2 else [])))
            await asyncio.sleep(0.5)
        await w.rest()
        assert len(updates(w)) <= CHANGES + 6
        await asyncio.sleep(CHANGE_PAUSE + 1.0)
        await w.rest()
        assert updates(w)[-1] == ("web", "n2")
        w.cluster.remove("Node", "n2")
        await w.rest()
        assert updates(w)[-1] == ("web",)


async def test_a_kubelet_that_registers_again_for_ever_costs_few_updates() -> None:
    """Each time with its provider ID and without a taint: it leaves the backends and joins them."""
    async with running_with(N1, N2, service()) as w:
        await w.rest()
        await register_again(w, 150, every=4.0)
        assert len(updates(w)) <= 2 * (CHANGES + 600 / CHANGE_PAUSE + 1)
        await asyncio.sleep(CHANGE_PAUSE + 1.0)
        await w.rest()
        assert updates(w)[-1] == ("web", "n1", "n2")


async def test_a_kubelet_that_registers_again_with_another_provider_id_costs_few_updates() -> None:
    """Where it does so at once its deletion is not seen: its Node seems to have changed."""
    async with running_with(N1, N2, service()) as w:
        await w.rest()
        for turn in range(300):
            w.cluster.put(node("n1", again(turn), with_provider_id(f"fake://x{turn}")))
            await asyncio.sleep(2.0)
        await w.rest()
        assert len(updates(w)) <= CHANGES + 600 / CHANGE_PAUSE + 1
        await asyncio.sleep(CHANGE_PAUSE + 1.0)
        await w.rest()
        (last,) = (it for it in w.controller._backends.current().nodes if it.name == "n1")
        assert last.provider_id == "fake://x299"


async def test_a_node_that_moves_while_its_changes_wait_is_no_backend() -> None:
    """Before the cloud was asked whose its new machine is: a Service may be made meanwhile."""

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Any]) -> Mapping[str, str]:
            return {it.name: "not ours" if it.provider_id == "fake://9" else "" for it in nodes}

    async with running_with(N1, N2, service(), instances=Machines({})) as w:
        await w.rest()
        for turn in range(CHANGES + 1):
            w.cluster.put(node("n1", with_address(f"10.9.0.{turn}")))
        for turn in range(READS - 1):
            w.cluster.put(node("n1", again(turn), with_address("10.9.0.9")))
        await asyncio.sleep(0.5)
        await w.rest()
        assert updates(w)[-1] == ("web", "n1", "n2")
        w.cluster.put(node("n1", again(READS), with_provider_id("fake://9")), service(name="new"))
        await w.rest()
        assert w.balancers.named("ensure")[-1] == ("ensure", "new", "n2")


async def test_a_kubelet_that_registers_again_for_ever_costs_few_reads_of_marks() -> None:
    """And no Service waits for what the cloud says of it."""
    asked = list[float]()

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            asked.append(asyncio.get_running_loop().time())
            return await super().foreign(nodes)

    async with running_with(N1, N2, service(), instances=Machines({})) as w:
        await w.rest()
        await register_again(w, 150, every=2.0)
        assert len(asked) <= READS + 300 / READ_PAUSE + 1


async def test_nodes_that_register_under_new_names_cost_few_reads_of_marks() -> None:
    """Each was asked about before all else, and who joined waited; no Service waits for them."""
    asked = list[float]()
    clock = asyncio.get_running_loop().time

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            asked.append(clock())
            return await super().foreign(nodes)

    async with running_with(N1, N2, service(), instances=Machines({})) as w:
        await w.rest()
        for turn in range(240):
            w.cluster.put(node(f"new-{turn}"))
            await asyncio.sleep(0.25)
            w.cluster.remove("Node", f"new-{turn}")
        assert len(asked) <= ROUNDS + 60 / ROUND_PAUSE + 2
        w.cluster.put(node("new"), service(name="late"))
        began = clock()
        await until(lambda: w.balancers.named("ensure")[-1][1] == "late")
        assert clock() - began < ROUND_PAUSE / 4
        w.cluster.put(N3)
        await until(lambda: updates(w)[-1][1:] == ("n1", "n2", "n3", "new"))


async def test_who_was_not_looked_at_is_no_backend_until_the_next_time() -> None:
    marks = {"n2": NOT_LOOKED}
    async with running_with(N1, N2, service(), instances=MarkedMachines(marks)) as w:
        await w.rest()
        assert w.balancers.named("ensure")[-1] == ("ensure", "web", "n1")
        marks.clear()
        began = time.monotonic()
        w.cluster.put(N3)
        await until(lambda: updates(w)[-1:] == [("web", "n1", "n2", "n3")])
        assert time.monotonic() - began < RECHECK / 2


async def test_who_was_asked_about_stays_what_it_was_until_it_is_looked_at_again() -> None:
    """Else each time was an update of all load balancers."""
    asked, answers = list[str](), dict[str, str]()

    class Machines(MarkedMachines):
        async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
            asked.extend(node.name for node in nodes)
            found = {name: "" for node in nodes if (name := node.name) != "n2"}
            return found | answers if len(found) < len(nodes) else found

    async with running_with(N1, N2, service(), instances=Machines({})) as w:
        await w.rest()
        answers["n2"] = NOT_LOOKED
        await asyncio.sleep(2 * RECHECK)
        assert updates(w) == []
        answers["n2"] = "another cluster's"
        await w.put(N3)
        await until(lambda: updates(w)[-1:] == [("web", "n1", "n3")])
        assert asked.count("n2") < 10


async def test_a_kubelet_whose_machine_is_another_nodes_costs_few_reads() -> None:
    """For each change of such a Node the cloud was asked whose the machine is."""
    machines = Inventory()
    machines.answers = dict.fromkeys(["0", "n1"], Instance("fake://n1", names=("n1",)))
    hostile = with_provider_id("fake://n1")
    async with running_with(N1, N2, service(), instances=machines) as w:
        for turn in range(600):
            w.cluster.put(node("0", hostile, with_address(f"10.9.{turn // 250}.{turn % 250}")))
            await asyncio.sleep(0.25)
        await w.rest()
        assert len(machines.reads) <= READS + 150 / READ_PAUSE + 1


async def register_for_ever(w: World, name: str, *described: Tweak) -> None:
    for turn in count():
        w.cluster.put(node(name.format(turn), again(turn), *described))
        await asyncio.sleep(0.01)
        w.cluster.remove("Node", name.format(turn))
        await asyncio.sleep(0.01)


CLAIM = with_provider_id("fake://n1"), created("2026-02-01T00:00:00Z")


@pytest.mark.parametrize(
    ("name", "described"),
    [
        pytest.param("0-hostile", (NO_PROVIDER_ID, UNINITIALIZED), id="without-machine"),
        pytest.param("0-{}", (NO_PROVIDER_ID, UNINITIALIZED), id="of-new-names"),
        pytest.param("0-hostile", CLAIM, id="claims"),
    ],
)
async def test_a_node_that_registers_for_ever_holds_up_no_other_that_joins(
    name: str, described: tuple[Tweak, ...]
) -> None:
    """Nodes that change are waited for, as others may follow: each time for two seconds."""

    async def seconds_to_join(w: World, name: str) -> float:
        began = time.monotonic()
        w.cluster.put(node(name))
        await until(lambda: any(name in update for update in updates(w)))
        return time.monotonic() - began

    async with running_with(N1, N2, service()) as w:
        calm = await seconds_to_join(w, "n3")
        registering = asyncio.create_task(register_for_ever(w, name, *described))
        await asyncio.sleep(1.0)
        assert await seconds_to_join(w, "n4") < 2 * calm
        registering.cancel()


async def test_a_node_that_registers_for_ever_beside_one_other_holds_up_few_new_services() -> None:
    """Where half of the Nodes are being initialized, a new Service waits for them."""
    in_time = 0
    async with running_with(N1) as w:
        for turn in range(24):
            w.cluster.put(node("0-hostile", again(turn), NO_PROVIDER_ID, UNINITIALIZED))
            w.cluster.put(service(name=f"web-{turn}"))
            await asyncio.sleep(5.0)
            in_time += any(f"web-{turn}" in call for call in w.balancers.named("ensure"))
            w.cluster.remove("Node", "0-hostile")
    assert in_time > 12


@pytest.mark.parametrize("stays", [0, 2, 30])
async def test_nodes_that_register_under_new_names_hold_up_few_new_services(stays: int) -> None:
    """As many as the others, of which none is initialized, for as many turns as each `stays`."""
    in_time = 0
    async with running_with(N1) as w:
        for turn in range(24):
            for name in ("a", "b"):
                w.cluster.put(node(f"0-{turn}-{name}", NO_PROVIDER_ID, UNINITIALIZED))
            w.cluster.put(service(name=f"web-{turn}"))
            await asyncio.sleep(5.0)
            in_time += any(f"web-{turn}" in call for call in w.balancers.named("ensure"))
            for name in ("a", "b") if turn >= stays else ():
                w.cluster.remove("Node", f"0-{turn - stays}-{name}")
    assert in_time > 12


async def test_a_claim_that_changes_while_the_cloud_is_asked_about_it_holds_up_no_service() -> None:
    """What changes too often is not asked about, and so not waited for, until a minute later."""
    answered = asyncio.Event()

    class Machines(Inventory):
        async def describe(self, objects: Sequence[Named]) -> Mapping[str, Any]:
            found = await super().describe(objects)
            await answered.wait()
            return found

    machines, claim = Machines(), with_provider_id("fake://n1")
    machines.answers = dict.fromkeys(["0", "n1"], Instance("fake://n1", names=("n1",)))
    answered.set()
    async with running_with(N1, instances=machines) as w:
        for turn in range(READS - 1):
            await w.put(node("0", claim, again(turn)))
            await asyncio.sleep(1.0)
        answered.clear()
        asked = len(machines.reads)
        w.cluster.put(node("0", claim, again(READS)))
        await until(lambda: len(machines.reads) > asked)
        w.cluster.put(node("0", claim, again(READS + 1)), service())
        answered.set()
        await asyncio.sleep(1.0)
        assert w.balancers.named("ensure")


async def test_each_machine_is_settled_once_however_many_nodes_name_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time all of them are read: they may be large, and take many seconds of one turn."""
    machines, names = Inventory(), [f"h{number}" for number in range(40)]
    machines.answers = dict.fromkeys([*names, "n1"], Instance("fake://n1", names=("n1",)))
    hostile = [node(name, with_provider_id("fake://n1")) for name in names]
    async with running_with(N1, service(), instances=machines) as w:
        read, reads = w.store.view, list[str]()

        def view(kind: type[Node], key: str) -> Node | None:
            reads.append(key)
            return read(kind, key)

        monkeypatch.setattr(w.store, "view", view)
        w.cluster.put(*hostile)
        await asyncio.sleep(1.0)
        assert machines.reads
        assert len(reads) < 10 * len(names)


async def test_nodes_that_share_a_made_up_machine_cost_no_proofs() -> None:
    """Each took a call in each minute, before all others."""
    machines, same = ProvingMachines(), with_provider_id("fake://made-up")
    async with running_with(service(), N1, instances=machines) as w:
        await w.put(*(node(f"z{at}", same) for at in range(5)))
        await asyncio.sleep(3 * RECHECK)
        assert machines.reads
    assert machines.proven == []
