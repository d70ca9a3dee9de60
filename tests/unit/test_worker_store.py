"""A worker's copy of the objects it wants."""

import asyncio
import time

import pytest

from ccm.bus.frames import Objects
from ccm.model.objects import Json, Projection, project
from tests.support.context import Entry, frame, snapshot
from tests.support.waiting import let_run
from workers.store import AppliedFrame, Gap, Store

pytestmark = pytest.mark.virtual_time

PROJECTIONS = (
    Projection("Node", (("metadata", "name"), ("spec",))),
    Projection("Service", (("spec",),)),
)


def value(text: str) -> Json:
    """As the supervisor cuts it."""
    return project({"metadata": {"name": "n"}, "spec": {"is": text}}, PROJECTIONS[0].paths)


def entry(key: str, version: int, text: str | None = "x", kind: str = "Node") -> Entry:
    return [kind, key, version, None if text is None else value(text)]


def answer(version: int, text: str) -> Json:
    """What the API server answers to a write: the whole object."""
    whole = {"name": "n", "resourceVersion": str(version), "managedFields": []}
    return {"metadata": whole, "spec": {"is": text}, "status": {"not": "wanted"}}


def filled(*entries: Entry) -> Store:
    store = Store(PROJECTIONS)
    store.apply(snapshot(*entries))
    return store


def test_a_snapshot_is_visible_once_it_is_complete() -> None:
    store = Store(PROJECTIONS)
    first = frame(1, entry("a", 5))
    assert store.apply(first) == AppliedFrame([], completed=False)
    assert store.get("Node", "a") is None
    last = frame(2, entry("b", 6), complete=True)
    assert store.apply(last) == AppliedFrame([("Node", "a"), ("Node", "b")], completed=True)
    assert store.get("Node", "a") == value("x")


def test_a_delta_changes_what_it_names_and_nothing_else() -> None:
    store = filled(entry("a", 1, "old"), entry("b", 1, "old"), entry("c", 1))
    delta = frame(2, entry("a", 2, "new"), entry("c", 0, None))
    assert store.apply(delta).changed == [("Node", "a"), ("Node", "c")]
    assert [store.get("Node", key) for key in "abc"] == [value("new"), value("old"), None]


def test_the_deletion_of_what_no_one_knew_is_no_change() -> None:
    assert filled().apply(frame(2, entry("a", 0, None))).changed == []


def test_an_object_without_any_wanted_field_is_there() -> None:
    store = filled(["Node", "a", 1, {}])
    assert store.apply(frame(2, ["Node", "b", 2, {}])).changed == [("Node", "b")]
    assert [store.get("Node", key) for key in "abc"] == [{}, {}, None]


def test_a_new_snapshot_drops_what_it_does_not_contain() -> None:
    store = filled(entry("a", 1), entry("b", 1))
    applied = store.apply(snapshot(entry("b", 1), entry("c", 2), epoch=2))
    assert set(applied.changed) == {("Node", "a"), ("Node", "b"), ("Node", "c")}
    assert set(store.names()) == {("Node", "b"), ("Node", "c")}
    store.apply(frame(2, entry("b", 0, None), entry("b", 0, None), epoch=2))
    assert store.count("Node") == 1


def test_until_a_new_snapshot_is_complete_the_old_objects_stay() -> None:
    store = filled(entry("a", 1))
    store.apply(frame(1, entry("b", 2), epoch=2))
    assert store.names() == [("Node", "a")]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(frame(3, entry("a", 9)), id="one-is-missing"),
        pytest.param(frame(1, entry("a", 9)), id="one-came-twice"),
        pytest.param(frame(2, entry("a", 9), epoch=2), id="the-start-of-a-snapshot-is-missing"),
    ],
)
def test_a_gap_is_seen_and_changes_nothing(odd: Objects) -> None:
    store = filled(entry("a", 1, "old"))
    with pytest.raises(Gap):
        store.apply(odd)
    assert store.get("Node", "a") == value("old")


# Own writes.

MINE = "mine"


def after(history: list[Objects | str]) -> Store:
    """A store with an old `a` that has had these frames, and answers to own writes of these."""
    store = filled(entry("a", 1, "old"))
    for event in history:
        if isinstance(event, str):
            store.wrote("Node", "a", answer(5, event))
        else:
            store.apply(event)
    return store


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([MINE], MINE, id="known-at-once-and-cut-down-to-what-is-wanted"),
        pytest.param([MINE, frame(2, entry("a", 4, "before"))], MINE, id="an-older-entry"),
        pytest.param([MINE, frame(2, entry("a", 5, "theirs"))], "theirs", id="it-comes-back"),
        pytest.param([MINE, frame(2, entry("a", 6, "theirs"))], "theirs", id="a-newer-entry"),
        pytest.param(
            [MINE, snapshot(entry("a", 4, "x"), epoch=2), frame(2, entry("a", 4, "x"), epoch=2)],
            MINE,
            id="an-older-snapshot",
        ),
        pytest.param(
            [MINE, frame(2, entry("a", 0, None)), frame(3, entry("a", 2, "another"))],
            "another",
            id="another-object-under-its-name",
        ),
        pytest.param([frame(2, entry("a", 0, None)), MINE], None, id="the-object-is-gone"),
        pytest.param([frame(2, entry("a", 6, "newer")), MINE], "newer", id="it-was-late"),
        pytest.param(
            [frame(1, entry("a", 1), epoch=2), MINE, frame(2, epoch=2, complete=True)],
            MINE,
            id="during-a-snapshot",
        ),
    ],
)
def test_an_own_write_counts_until_the_feed_has_it_or_something_newer(
    history: list[Objects | str], expected: str | None
) -> None:
    store = after(history)
    assert store.get("Node", "a") == (value(expected) if expected else None)


def test_an_own_write_that_comes_back_is_no_news() -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    assert store.apply(frame(2, entry("a", 4, "before"))).changed == []
    assert store.apply(frame(3, entry("a", 5, "mine"))).changed == []
    assert store.apply(frame(4, entry("a", 6, "mine"))).changed == [("Node", "a")]


@pytest.mark.parametrize(
    "brought",
    [entry("a", 5, "mine"), entry("a", 6, "theirs"), entry("a", 0, None)],
    ids=["ours", "newer", "gone"],
)
async def test_an_own_write_is_echoed_once_the_feed_has_it_or_something_newer(
    brought: Entry,
) -> None:
    store = filled(entry("a", 1, "old"))
    await store.echoed("Node", "a", 5.0)  # nothing was written yet
    store.wrote("Node", "a", answer(5, "mine"))
    echo = asyncio.create_task(store.echoed("Node", "a", 5.0))
    store.apply(frame(2, entry("a", 4, "before")))
    await let_run()
    assert not echo.done()
    store.apply(frame(3, brought))
    await let_run()
    assert echo.done()


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([frame(2, entry("a", 4, "mine")), MINE], id="before-our-write"),
        pytest.param([MINE, frame(2, entry("a", 4, "mine"))], id="behind-its-answer"),
    ],
)
async def test_an_own_write_of_what_someone_wrote_already_has_no_echo(
    history: list[Objects | str],
) -> None:
    """The supervisor sends nothing of a version in which nothing that is wanted has changed."""
    store = after(history)
    began = time.monotonic()
    await store.echoed("Node", "a", 5.0)
    assert time.monotonic() == pytest.approx(began, abs=1e-3)


async def test_no_one_waits_long_for_an_echo_that_does_not_come() -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    began = time.monotonic()
    await store.echoed("Node", "a", 5.0)
    assert time.monotonic() - began == pytest.approx(5.0, abs=1e-3)


def test_another_order_of_members_is_no_news() -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    other = dict(reversed(value("mine").items()))
    assert list(other) != list(value("mine"))
    assert store.apply(frame(2, ["Node", "a", 5, other])).changed == []
    assert store.apply(frame(3, ["Node", "a", 5, value("theirs")])).changed == [("Node", "a")]


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"metadata": {"resourceVersion": "x"}}])
def test_an_answer_without_a_usable_version_shadows_nothing(odd: Json) -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", odd)
    store.apply(frame(2, entry("a", 2, "theirs")))
    assert store.get("Node", "a") == value("theirs")
