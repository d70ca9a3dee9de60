"""What the volume-label controller does when it calls the cloud and the cluster."""

import asyncio
import time

import pytest

from ccm.decide.budget import Priority
from ccm.errors import CloudError, Denied, KubernetesError, NotLeading, Refused, Unreachable
from ccm.model.cloud import Gone, PlaceAnswer, Unknown
from tests.support.context import running as under_runner
from tests.support.nodes import Tweak, recreated
from tests.support.waiting import let_run, until
from workers.controller import Result
from workers.volume_label import controller as worker

from .volumes import (
    REGION,
    ZONE,
    labelled,
    of_driver,
    place,
    volume,
    waiting,
)
from .world import World, world

pytestmark = pytest.mark.virtual_time


async def test_a_volume_gets_labels_and_affinity_in_one_write_and_then_rests() -> None:
    async with world() as w:
        w.put(volume(waiting()), answer=place("a", "b"))
        result = await w.sync()
        after = w.cluster.volume()
        assert (result.message, result.is_done) == ("labelled", True)
        assert after.labels == {ZONE: "a__b", REGION: "north"}
        assert after.node_affinity is not None
        assert not after.waits_for_labels
        assert "initializers" not in after.meta
        assert (w.cluster.writes, await w.events()) == (1, [])
        assert (await w.sync()).message == "labelled"
        assert (w.cluster.writes, len(w.places.reads)) == (1, 1)


async def test_the_own_write_is_seen_before_the_feed_brings_it() -> None:
    async with world() as w:
        w.put(volume(), answer=place("a"))
        await w.sync()
        assert (await w.reconcile()).message == "labelled"
        assert (w.cluster.tries, len(w.places.reads)) == (1, 1)


async def test_an_answer_that_a_proxy_kept_is_no_word_that_a_volume_is_labelled() -> None:
    async with world() as w:
        w.put(volume(), answer=place("a"))
        w.cluster.kept = {1}
        with pytest.raises(Unreachable, match="of before it"):
            await w.sync()
        await w.reconcile()
        assert w.cluster.volume().labels[ZONE] == "a"


async def test_a_volume_that_is_left_alone_costs_neither_a_read_nor_a_write() -> None:
    async with world() as w:
        w.cluster.put(volume(of_driver("other"), waiting()))
        assert (await w.sync()).is_done
        assert (w.places.reads, w.cluster.tries, await w.events()) == ([], 0, [])


async def test_a_volume_that_is_gone_needs_nothing() -> None:
    async with world() as w:
        assert (await w.sync("nobody")).message == "it is gone"


@pytest.mark.parametrize(
    ("tweaks", "answer", "error", "reason"),
    [
        pytest.param([], Gone("404"), CloudError, "VolumeNotFound", id="unknown-handle"),
        pytest.param([labelled(zone="z")], place("a"), Refused, "LabelConflict", id="label"),
    ],
)
async def test_what_cannot_be_labelled_ends_in_one_event_and_stays_as_it_is(
    tweaks: list[Tweak], answer: PlaceAnswer, error: type[CloudError], reason: str
) -> None:
    async with world() as w:
        w.cluster.put(volume(*tweaks))
        before = w.cluster.volume()
        w.places.answers["pv-1"] = answer
        for _ in range(3):
            with pytest.raises(error) as raised:
                await w.sync()
            assert type(raised.value) is error
        ((kind, reported, message),) = await w.events()
        assert (kind, reported, message) == ("Warning", reason, str(raised.value))
        object_ref = {"apiVersion": "v1", "kind": "PersistentVolume", "name": "pv-1"}
        assert w.cluster.events[0]["involvedObject"] == {**object_ref, "uid": "uid-of-pv-1"}
        assert (w.cluster.volume(), w.cluster.tries) == (before, 0)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        pytest.param(None, None, id="nothing-said"),
        pytest.param(Unknown("no answer"), None, id="unknown"),
        pytest.param(None, CloudError("boom"), id="error"),
        pytest.param(None, Denied("no"), id="denied"),
        pytest.param(None, ValueError("a bug of the provider"), id="a-provider-that-fails"),
    ],
)
async def test_without_an_answer_the_volume_is_retried_without_an_event(
    answer: PlaceAnswer | None, failure: Exception | None
) -> None:
    async with world() as w:
        w.cluster.put(volume())
        if answer:
            w.places.answers["pv-1"] = answer
        w.places.failures = [failure] if failure else []
        with pytest.raises(CloudError):
            await w.sync()
        assert (w.cluster.tries, await w.events()) == (0, [])
        w.places.answers["pv-1"] = place("a")
        assert (await w.sync()).is_done
        assert w.cluster.volume().labels[ZONE] == "a"


async def test_volumes_that_come_together_are_read_together_and_one_holds_up_no_other() -> None:
    async with world() as w:
        names = [f"pv-{number}" for number in range(5)]
        for name in names:
            w.put(volume(name=name), answer=place("a"))
        w.places.answers["pv-2"] = Gone("404")
        w.feed()
        ended = await asyncio.gather(*map(w.reconcile, names), return_exceptions=True)
        assert [type(end) for end in ended] == [Result, Result, CloudError, Result, Result]
        assert w.places.reads == [names]
        unlabelled = [name for name in names if not w.cluster.volume(name).labels]
        assert unlabelled == ["pv-2"]


async def test_an_answer_about_an_earlier_volume_of_that_name_is_not_taken() -> None:
    async with world() as w:
        w.put(volume(), answer=place("a"))
        w.feed()
        reading = asyncio.create_task(w.reconcile())
        await let_run()  # it waits for its batch
        w.put(volume(recreated), answer=place("b"))
        w.feed()
        assert not (await reading).is_done
        await w.sync()
        assert w.cluster.volume().labels[ZONE] == "b"
        assert len(w.places.reads) == 2


async def test_a_write_that_the_server_refuses_for_good_is_reported_and_backs_off() -> None:
    w = World(None)
    async with under_runner(worker, w.context, w.controller, w.port):
        w.put(volume(), answer=place("a"))
        w.cluster.failures = [KubernetesError(422, "Invalid", "a webhook says no", None)] * 5
        w.feed()
        began = time.monotonic()
        w.queue.add("pv-1")
        await until(lambda: w.queue.failures("pv-1"))
        ((kind, reason, message),) = await w.events()
        assert (kind, reason, "a webhook says no" in message) == ("Warning", "WriteRefused", True)
        assert (w.queue.due_in("pv-1") or 0.0) + time.monotonic() - began >= 8.0
        w.cluster.failures = []
        w.queue.add("pv-1")
        await until(lambda: w.cluster.volume().labels)
        assert w.cluster.tries == 2


async def test_without_permission_nothing_is_written() -> None:
    async with world() as w:
        w.put(volume(), answer=place("a"))
        w.permission.renew(0.0)
        with pytest.raises(NotLeading):
            await w.sync()
        assert w.cluster.tries == 0
        w.permission.renew(float("inf"))
        assert (await w.sync()).is_done


async def test_what_status_and_events_know_of_it() -> None:
    async with world() as w:
        w.put(volume(), answer=place("a"))
        await w.sync()
        assert w.controller.status() == {"objects": 1, "labelled": 1}
        object_ref = w.controller.object_ref("pv-1")
        assert object_ref is not None
        assert (object_ref.kind, object_ref.uid) == ("PersistentVolume", "uid-of-pv-1")
        assert w.controller.object_ref("nobody") is None


async def test_reads_spend_at_the_priority_of_volumes() -> None:
    async with world() as w:
        w.put(volume(), answer=place("a"))
        await w.sync()
        assert w.places.grants.spent == [("read", Priority.VOLUME)]


async def test_what_one_answer_contradicts_is_asked_about_again() -> None:
    """The next answer may be right, and nothing tells when it is."""
    w = World(None)
    async with under_runner(worker, w.context, w.controller, w.port):
        w.put(volume(labelled(zone="z")), answer=place("a"))
        w.feed()
        w.queue.add("pv-1")
        await until(lambda: len(w.places.reads) == 1)
        w.places.answers["pv-1"] = place("z")
        await asyncio.sleep(worker.CONFLICT_RETRY + 10.0)
        assert w.cluster.volume().labels == {ZONE: "z", REGION: "north"}
        assert len(w.places.reads) == 2
