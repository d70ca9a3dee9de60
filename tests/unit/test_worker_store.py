"""A worker's copy of the objects it wants."""

import pytest

from ccm.bus.frames import Objects
from ccm.model.objects import Json, Projection
from tests.worlds.context import Entry, frame, snapshot
from workers.store import Absorbed, Gap, Store

PROJECTIONS = (
    Projection("Node", (("metadata", "name"), ("spec",))),
    Projection("Service", (("spec",),)),
)


def value(text: str) -> Json:
    return {"metadata": {"name": "n"}, "spec": {"is": text}}


def entry(key: str, version: int, text: str | None = "x", kind: str = "Node") -> Entry:
    return [kind, key, version, None if text is None else value(text)]


def answer(version: int, text: str) -> Json:
    """What the API server answers to a write: the whole object."""
    whole = {"name": "n", "resourceVersion": str(version), "managedFields": []}
    return {"metadata": whole, "spec": {"is": text}, "status": {"not": "wanted"}}


def filled(*entries: Entry) -> Store:
    store = Store(PROJECTIONS)
    store.absorb(snapshot(*entries))
    return store


def test_a_snapshot_is_visible_once_it_is_complete() -> None:
    store = Store(PROJECTIONS)
    first = frame(1, entry("a", 5))
    assert store.absorb(first) == Absorbed([], completed=False)
    assert store.get("Node", "a") is None
    last = frame(2, entry("b", 6), complete=True)
    assert store.absorb(last) == Absorbed([("Node", "a"), ("Node", "b")], completed=True)
    assert store.get("Node", "a") == value("x")


def test_a_delta_changes_what_it_names_and_nothing_else() -> None:
    store = filled(entry("a", 1, "old"), entry("b", 1, "old"))
    assert store.absorb(frame(2, entry("a", 2, "new"))).changed == [("Node", "a")]
    assert [store.get("Node", key) for key in "ab"] == [value("new"), value("old")]


def test_a_deleted_object_is_gone() -> None:
    store = filled(entry("a", 1), entry("b", 1))
    assert store.absorb(frame(2, entry("a", 0, None))).changed == [("Node", "a")]
    assert store.names() == [("Node", "b")]


def test_the_deletion_of_what_nobody_knew_is_no_change() -> None:
    assert filled().absorb(frame(2, entry("a", 0, None))).changed == []


def test_a_new_snapshot_drops_what_it_does_not_contain() -> None:
    store = filled(entry("a", 1), entry("b", 1))
    absorbed = store.absorb(snapshot(entry("b", 1), entry("c", 2), epoch=2))
    assert set(absorbed.changed) == {("Node", "a"), ("Node", "b"), ("Node", "c")}
    assert set(store.names()) == {("Node", "b"), ("Node", "c")}
    store.absorb(frame(2, entry("b", 0, None), entry("b", 0, None), epoch=2))
    assert store.count("Node") == 1


def test_until_a_new_snapshot_is_complete_the_old_objects_stay() -> None:
    store = filled(entry("a", 1))
    store.absorb(frame(1, entry("b", 2), epoch=2))
    assert store.names() == [("Node", "a")]


def test_what_is_deleted_inside_a_snapshot_is_not_in_it() -> None:
    store = filled()
    store.absorb(frame(1, entry("a", 1), epoch=2))
    store.absorb(frame(2, entry("b", 2), entry("a", 0, None), epoch=2, complete=True))
    assert store.names() == [("Node", "b")]


def test_objects_of_two_kinds_may_have_the_same_key() -> None:
    store = filled(entry("a", 1, "node"), entry("a", 1, "service", kind="Service"))
    assert (store.count("Node"), store.count("Service")) == (1, 1)
    assert store.get("Service", "a") == value("service")


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
        store.absorb(odd)
    assert store.get("Node", "a") == value("old")


# Own writes.


def test_an_own_write_is_known_at_once_and_cut_down_to_what_is_wanted() -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    assert store.get("Node", "a") == value("mine")


def test_an_older_entry_of_the_feed_does_not_undo_an_own_write() -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    assert store.absorb(frame(2, entry("a", 4, "before"))).changed == []
    assert store.get("Node", "a") == value("mine")


def test_an_own_write_that_comes_back_is_no_news() -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    assert store.absorb(frame(2, entry("a", 5, "mine"))).changed == []
    assert store.absorb(frame(3, entry("a", 6, "mine"))).changed == [("Node", "a")]


@pytest.mark.parametrize("version", [5, 6])
def test_the_feed_leads_again_from_the_own_write_on(version: int) -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    store.absorb(frame(2, entry("a", version, "theirs")))
    assert store.get("Node", "a") == value("theirs")


def test_an_older_snapshot_does_not_undo_an_own_write() -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    store.absorb(snapshot(entry("a", 4, "before"), epoch=2))
    assert store.get("Node", "a") == value("mine")
    store.absorb(frame(2, entry("a", 4, "before"), epoch=2))
    assert store.get("Node", "a") == value("mine")


def test_an_own_write_does_not_outlive_its_object() -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", answer(5, "mine"))
    store.absorb(frame(2, entry("a", 0, None)))
    store.absorb(frame(3, entry("a", 2, "another object under this name")))
    assert store.get("Node", "a") == value("another object under this name")


def test_a_write_of_an_object_that_is_gone_does_not_bring_it_back() -> None:
    store = filled(entry("a", 1))
    store.absorb(frame(2, entry("a", 0, None)))
    store.wrote("Node", "a", answer(5, "mine"))
    assert store.names() == []


def test_an_own_write_does_not_undo_a_newer_entry_of_the_feed() -> None:
    store = filled(entry("a", 1, "old"))
    store.absorb(frame(2, entry("a", 6, "theirs, newer")))
    store.wrote("Node", "a", answer(5, "mine, older"))
    assert store.get("Node", "a") == value("theirs, newer")


def test_an_own_write_during_a_snapshot_outlives_it() -> None:
    store = filled(entry("a", 1, "old"))
    store.absorb(frame(1, entry("a", 1, "old"), epoch=2))
    store.wrote("Node", "a", answer(5, "mine"))
    store.absorb(frame(2, epoch=2, complete=True))
    assert store.get("Node", "a") == value("mine")


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"metadata": {"resourceVersion": "x"}}])
def test_an_answer_without_a_usable_version_shadows_nothing(odd: Json) -> None:
    store = filled(entry("a", 1, "old"))
    store.wrote("Node", "a", odd)
    store.absorb(frame(2, entry("a", 2, "theirs")))
    assert store.get("Node", "a") == value("theirs")
