"""Two Nodes that name one machine: the older one keeps everything, the newer one gets an Event."""

import asyncio
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from ccm.controllers import NODE
from ccm.decide.budget import READ_PAUSE, READS, Priority
from ccm.errors import CloudError
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.objects import Json, Node
from tests.support.cloud import Inventory, ProvingMachines
from tests.support.nodes import (
    Tweak,
    changed,
    created,
    labelled,
    machine,
    node,
    tainted,
    with_provider_id,
)
from workers.store import FORMER_NODE_COUNTS, MachineHolders

from .world import World, world

pytestmark = pytest.mark.virtual_time

OLDER, OLD, NEW = (created(f"{year}-01-01T00:00:00Z") for year in (2024, 2025, 2026))
UUID = "a1b2c3d4-0000-4000-8000-00000000000b"
MACHINE = machine("fake://1", "InternalIP 10.0.0.1")


def with_system_uuid(uuid: str) -> Tweak:
    return lambda raw: raw["status"].update(nodeInfo={"systemUUID": uuid})


async def sync(w: World, key: str) -> str:
    w.feed()
    return (await w.reconcile(key)).message


def is_untouched(w: World, before: Node) -> bool:
    after = w.cluster.node(before.name)
    return (after.taints, after.addresses, after.labels, after.provider_id) == (
        before.taints,
        before.addresses,
        before.labels,
        before.provider_id,
    )


async def test_a_node_that_joins_waits_for_no_proof_about_those_on_no_machine() -> None:
    """Each took a call: beside 200 of them DigitalOcean's rate let others wait for two minutes, and
    for longer where they registered again and again with other IDs.
    """
    made_up = [f"made-up-{at}" for at in range(3)]
    machines = ProvingMachines()
    async with world(machines=machines) as w:
        w.put(node(tainted, with_provider_id("fake://1"), name="joins"), answer=MACHINE)
        names = ["joins", *made_up]
        for turn in range(4):
            for name in made_up:
                made = with_provider_id(f"fake://{name}-{turn}")
                w.put(node(tainted, made, name=name), answer=Gone("404"))
            w.feed()
            await asyncio.gather(*map(w.reconcile, names), return_exceptions=True)
            for name in made_up:
                w.queue.add_failed(name)
        assert not w.cluster.node("joins").is_uninitialized
        assert [reason for _, reason, _ in await w.events()].count("CloudMachineNotFound") == 3
    assert machines.proven == [made_up] * 2
    assert machines.priorities == [Priority.REFRESH] * 2


async def test_a_newer_node_on_the_machine_of_another_stays_as_it_is() -> None:
    victim = node(tainted, with_provider_id("fake://1"), OLD, name="victim")
    hostile = node(tainted, with_provider_id("fake://1"), NEW, name="0-hostile")
    async with world() as w:
        w.put(victim, hostile, answer=MACHINE)
        assert "has the same machine and is older" in await sync(w, "0-hostile")
        assert await sync(w, "victim") == "initialized"
        assert is_untouched(w, hostile)
        kinds = {(reason, message.partition(":")[0]) for _, reason, message in await w.events()}
        reported = "DuplicateProviderID", "Node victim has the same machine and is older"
        assert kinds == {reported, ("Synced", "Node synced successfully")}
        w.cluster.remove("Node", "victim")
        assert "0-hostile" in w.feed()
        assert await sync(w, "0-hostile") == "initialized"


async def test_an_initialized_newer_node_does_not_follow_the_machine() -> None:
    hostile = node(with_provider_id("fake://1"), NEW, name="0-hostile")
    async with world(NODE, node_status_update_frequency=0.02) as w:
        w.put(node(with_provider_id("fake://1"), OLD, name="victim"), hostile, answer=MACHINE)
        await sync(w, "0-hostile")
        w.controller._refresh_pass._answers["0-hostile"] = hostile.uid, MACHINE
        await sync(w, "0-hostile")
        assert is_untouched(w, hostile)


@pytest.mark.parametrize(
    ("age", "is_refused"),
    [
        pytest.param(NEW, True, id="newer"),
        pytest.param(OLDER, False, id="older"),
    ],
)
async def test_a_node_without_an_id_gets_no_machine_that_an_older_one_has(
    age: Tweak, is_refused: bool
) -> None:
    """An older one keeps what is its own by name, whatever ID a newer Node wrote."""
    async with world() as w:
        w.put(node(with_provider_id("fake://1"), OLD, name="other"), answer=MACHINE)
        asked = node(tainted, age, name="named")
        w.put(asked, answer=MACHINE)
        if is_refused:
            with pytest.raises(CloudError, match="Node other has the same machine and is older"):
                await sync(w, "named")
            assert is_untouched(w, asked)
            assert [reason for _, reason, _ in await w.events()] == ["DuplicateProviderID"]
        else:
            assert await sync(w, "named") == "initialized"
            assert "other" in w.feed()
            assert "Node named has the same machine and is older" in await sync(w, "other")


def test_the_oldest_of_several_holds_a_machine_however_its_id_is_written() -> None:
    holders = MachineHolders(lambda provider_id: provider_id.rpartition("/")[2])
    first = node(with_provider_id("aws:///zone/i-1"), OLD, name="b")
    second = node(with_provider_id("aws:///i-1"), NEW, name="a")
    assert holders.update("a", second) == set()
    assert holders.update("b", first) == {"a"}
    assert (holders.holder("a"), holders.holder("b")) == ("b", "")
    moved = changed(first, with_provider_id("aws:///zone/i-2"))
    assert holders.update("b", moved) == {"a"}
    assert (holders.holder("a"), holders.holder("b")) == ("", "")
    assert holders.update("b", first) == {"a"}
    assert holders.update("b", None) == {"a"}
    assert holders.holder("a") == ""
    assert holders.update("c", node(name="c")) == set()
    assert holders.holder("c") == ""


async def test_nodes_that_name_one_machine_and_come_at_once_are_read_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each older than the one before: for each, all were read, in the one turn of a start, and
    when the cloud was asked about it.
    """
    at, mine = "2026-01-01T00:00:{:02}Z", with_provider_id("fake://1")
    many = [node(mine, created(at.format(59 - number)), name=f"n{number}") for number in range(50)]
    async with world() as w:
        for each in many:
            w.cluster.put(each)
        read, reads = w.store.get, list[str]()

        def get(kind: str, key: str) -> Json | None:
            reads.append(key)
            return read(kind, key)

        monkeypatch.setattr(w.store, "get", get)
        w.feed()
        w.machines.answers = {each.name: MACHINE for each in many}
        for each in many:
            await w.reconcile(each.name)
        assert len(reads) < 20 * len(many)


def test_who_has_a_machine_is_not_looked_for_among_all_that_name_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked of each of them after each change of any Node."""
    holders, searches, mine = MachineHolders(str), list[int](), with_provider_id("fake://1")
    for number in range(20):
        holders.update(f"n{number}", node(mine, OLD, name=f"n{number}"))

    def search(names: dict[str, Any], **how: Any) -> Any:
        searches.append(len(names))
        return min(names, **how)

    monkeypatch.setattr("workers.store.min", search, raising=False)
    held = [number for number in range(20) if not holders.why_not(f"n{number}")]
    assert (held, searches) == ([0], [])


@pytest.mark.parametrize("has_id", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"names": ("owner.example",)}, id="name"),
        pytest.param({"names": ("x",), "system_uuid": UUID}, id="uuid"),
    ],
)
async def test_a_node_that_claimed_a_machine_first_keeps_its_own_node_from_nothing(
    said: dict[str, Any], has_id: bool
) -> None:
    """The cloud says whose it is; who came first counts where it does not."""
    instance = replace(MACHINE, **said)
    claimant = node(tainted, with_provider_id("fake://1"), OLD, name="claimant")
    tweaks = (with_provider_id("fake://1"),) if has_id else ()
    owner = node(tainted, with_system_uuid(UUID.upper()), NEW, *tweaks, name="owner")
    async with world() as w:
        w.put(claimant, owner, answer=instance)
        assert await sync(w, "owner") == "initialized"
        w.feed()
        assert "Node owner has the same machine and matches" in await sync(w, "claimant")
        assert is_untouched(w, claimant)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"names": ("owner.example",)}, id="name"),
        pytest.param({"names": ("x",), "system_uuid": UUID}, id="uuid"),
    ],
)
async def test_what_the_cloud_calls_a_machine_later_decides_as_well(said: dict[str, Any]) -> None:
    """It may not know the guest's name yet when the Nodes that name it are compared."""
    claimant = node(tainted, with_provider_id("fake://1"), OLD, name="claimant")
    tweaks = tainted, with_system_uuid(UUID), NEW, with_provider_id("fake://1")
    async with world() as w:
        w.put(claimant, node(*tweaks, name="owner"), answer=replace(MACHINE, names=("vm-1",)))
        assert "Node claimant has the same machine" in await sync(w, "owner")
        w.machines.answers = dict.fromkeys(w.machines.answers, replace(MACHINE, **said))
        assert (await w.reconcile("owner")).message == "initialized"


def test_who_named_a_machine_otherwise_and_has_left_leaves_it_to_whose_it_is() -> None:
    """By its VMID, say, where the others name it by its UUID."""
    holders = MachineHolders(lambda provider_id: provider_id)
    instance = Instance("fake://1", aliases=("fake://uuid",), names=("owner.example",))
    by_uuid = with_provider_id("fake://uuid")
    claimant, owner = node(by_uuid, OLD, name="claimant"), node(by_uuid, NEW, name="owner")
    better = node(with_provider_id("fake://1"), NEW, name="owner.example")

    def settle(asked: Node, *others: Node) -> None:
        if not holders.is_settled(instance, asked.name):
            holders.settle(instance, [asked, *others])

    for each in (claimant, owner):
        holders.update(each.name, each)
    settle(owner, claimant)
    holders.update(better.name, better)
    settle(better, claimant, owner)
    holders.update(better.name, None)
    settle(owner, claimant)
    assert (holders.holder("owner"), holders.holder("claimant")) == ("", "owner")


async def test_a_machine_that_the_cloud_knows_by_another_id_as_well_is_one() -> None:
    """Its VMID and its UUID, say."""
    async with world() as w:
        w.put(node(with_provider_id("fake://1"), OLD, name="old"), answer=MACHINE)
        asked = node(tainted, with_provider_id("fake://uuid-of-1"), NEW, name="new")
        w.put(asked, answer=Instance("fake://uuid-of-1", aliases=("fake://1", "fake://uuid-of-1")))
        with pytest.raises(CloudError, match="Node old has the same machine and is older"):
            await sync(w, "new")
        assert is_untouched(w, asked)


@pytest.mark.parametrize("provider_id", ["fake://a\nb/1", "1"])
async def test_an_id_that_is_none_of_the_cloud_names_no_machine(
    provider_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Providers read the zone in it leniently, and the API server takes a line break.

    It takes what a provider makes of an ID as well, such as a bare UUID.
    """
    hostile = node(with_provider_id(provider_id), OLD, name="0-hostile")
    monkeypatch.setattr(Inventory, "machine_of", lambda _, written: written.rpartition("/")[2])
    async with world() as w:
        owner = node(tainted, with_provider_id("fake://1"), NEW, name="owner")
        w.put(hostile, owner, answer=MACHINE)
        assert await sync(w, "owner") == "initialized"


def test_a_provider_id_that_the_provider_stumbles_over_is_a_machine_of_its_own() -> None:
    holders = MachineHolders(lambda provider_id: provider_id.split("://")[1])
    for name in ("a", "b"):
        holders.update(name, node(with_provider_id("odd"), name=name))
    assert (holders.holder("a"), holders.holder("b")) == ("", "a")


def test_long_texts_of_nodes_that_are_gone_take_no_memory() -> None:
    """A kubelet may register under ever new names: each left megabytes in each worker."""
    holders, size = MachineHolders(lambda provider_id: provider_id), 1_000_000
    long = "x" * size
    tracemalloc.start()
    for provider_id, uuid in ((f"fake://1{long}", UUID), ("fake://1", f"{UUID}{long}")):
        for name in (f"{uuid[-1]}{at}" for at in range(10)):
            tweaks = with_provider_id(f"{provider_id}{name}"), with_system_uuid(f"{uuid}{name}")
            holders.update(name, node(*tweaks, name=name))
            holders.update(name, None)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 5 * size  # what is still named here


@pytest.mark.parametrize(
    ("before", "after", "is_called_gone", "is_believed"),
    [
        pytest.param(UUID, UUID.upper(), True, True, id="the-same-kubelet-registers-again"),
        pytest.param(UUID, UUID.replace("a", "b"), False, False, id="another-kubelet"),
        pytest.param("", "", False, True, id="without-uuid"),
        pytest.param(UUID, "", True, False, id="without-uuid-and-the-machine-is-gone"),
    ],
)
async def test_a_stale_read_pins_no_node_to_the_machine_of_an_earlier_one(
    before: str, after: str, is_called_gone: bool, is_believed: bool
) -> None:
    async with world() as w:
        w.put(node(with_provider_id("fake://1"), OLD, with_system_uuid(before)))
        w.feed()
        if is_called_gone:
            w.controller._holders.on_gone("fake://1")
        w.cluster.remove("Node", w.KEY)
        w.feed()
        again = node(
            tainted, NEW, with_system_uuid(after), lambda raw: raw["metadata"].update(uid="2")
        )
        w.put(again, answer=MACHINE)
        message = await sync(w, w.KEY)
        assert is_untouched(w, again) is not is_believed, message
        if not is_believed:
            assert "still reports fake://1" in message
            w.put(again, answer=replace(MACHINE, provider_id="fake://2"))
            assert await sync(w, w.KEY) == "initialized"
        await asyncio.sleep(FORMER_NODE_COUNTS)
        assert await sync(w, w.KEY) == "initialized"


@pytest.mark.parametrize("is_registered_again", [False, True])
@pytest.mark.parametrize(
    ("tweaks", "answer"),
    [
        pytest.param((with_provider_id("fake://1"), NEW), MACHINE, id="of-another"),
        pytest.param((with_provider_id("fake://made-up"), tainted), Gone("no such"), id="of-none"),
        pytest.param((tainted,), Unknown("not yet"), id="not-known"),
    ],
)
async def test_a_kubelet_that_changes_its_node_for_ever_costs_few_reads(
    tweaks: tuple[Tweak, ...], answer: Answer, is_registered_again: bool
) -> None:
    """They go before all else that the cloud is asked."""

    def register(raw: Json) -> None:
        raw["metadata"]["uid"] = str(turn if is_registered_again else 0)

    async with world(NODE) as w:
        w.put(node(with_provider_id("fake://1"), OLD, name="victim"), answer=MACHINE)
        for turn in range(600):
            change = labelled({"turn": str(turn)})
            w.put(node(*tweaks, change, register, name="0-hostile"), answer=answer)
            with suppress(CloudError):
                await sync(w, "0-hostile")
            await asyncio.sleep(0.1)
        assert len(w.machines.reads) <= READS + 60 / READ_PAUSE + 1
