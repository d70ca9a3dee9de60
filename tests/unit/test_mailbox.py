"""What a worker is told: newest state only, bounded, gap-proof."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.supervisor.mailbox import FRAME_BYTES, WINDOW

from .telling import Feed, small_frames


def test_nothing_is_sent_before_everything_is_listed() -> None:
    feed = Feed()
    feed.nodes.is_listed = True
    feed.box.begin()
    feed.put("a", 1)
    assert not feed.worker.on_the_way
    assert not feed.box.has_begun


def test_a_snapshot_has_everything_of_all_kinds() -> None:
    feed = Feed()
    for number in range(100):
        feed.put(f"n{number}", number)
        feed.put(f"s{number}", number, feed.services)
    feed.listed().settle()
    assert feed.told() == feed.there()
    assert feed.worker.store.count("Service") == 100
    assert feed.worker.completed == 1


def test_an_empty_snapshot_is_told_too() -> None:
    feed = Feed().listed()
    feed.settle()
    assert feed.worker.completed == 1


def test_a_snapshot_of_many_frames_is_complete_with_its_last() -> None:
    with small_frames():
        feed = Feed()
        for number in range(15):
            feed.put(f"n{number}", number)
        feed.listed()
        while not feed.worker.completed:
            assert feed.told() == {}
            feed.deliver()
    assert feed.told() == feed.there()


def test_what_belongs_to_another_worker_is_not_told() -> None:
    feed = Feed()
    feed.put("other", 1)
    feed.listed()
    feed.put("other", 2)
    feed.put("mine", 3)
    feed.settle()
    assert feed.told() == {"mine": 3}


def test_a_slow_worker_gets_the_newest_state_and_no_queue_of_old_ones() -> None:
    feed = Feed().listed()
    feed.settle()
    for number in range(WINDOW):
        feed.put("a", number)
    for number in range(1000):
        feed.put("a", f"later {number}")
    assert (feed.box.in_flight, feed.box.depth) == (WINDOW, 1)
    feed.settle()
    assert feed.told() == {"a": "later 999"}
    assert feed.box.frames_sent == 1 + WINDOW + 1


def test_a_worker_that_never_answers_costs_bounded_memory() -> None:
    feed = Feed().listed()
    for change in range(50_000):
        feed.put(f"n{change % 1000}", change)
    assert (feed.box.in_flight, len(feed.worker.on_the_way)) == (WINDOW, WINDOW)
    assert feed.box.depth <= 1000
    assert sum(map(len, feed.worker.on_the_way)) < (WINDOW + 1) * FRAME_BYTES
    feed.settle()
    assert feed.told() == feed.there()


def test_a_frame_is_closed_once_it_is_long() -> None:
    feed = Feed()
    for number in range(10):
        feed.put(f"n{number}", "x" * (FRAME_BYTES // 2))
    feed.listed()
    assert all(len(frame) < 2 * FRAME_BYTES for frame in feed.worker.on_the_way)
    feed.settle()
    assert feed.told() == feed.there()


def test_a_lost_frame_is_noticed_and_made_good_by_a_snapshot() -> None:
    feed = Feed().listed()
    feed.settle()
    feed.put("a", 1)
    feed.worker.on_the_way.clear()
    feed.put("b", 2)
    feed.settle()
    assert feed.told() == {"a": 1, "b": 2}


def test_changes_while_the_worker_is_away_are_in_the_snapshot_of_its_successor() -> None:
    feed = Feed().listed()
    feed.put("a", 1)
    feed.put("b", 1)
    feed.settle()
    feed.worker.is_there = False
    feed.put("a", 2)
    feed.delete("b")
    feed.join()
    feed.settle()
    assert feed.told() == {"a": 2}


@pytest.mark.parametrize("seq", [-1, 0, 10**9])
def test_an_answer_to_a_frame_that_was_never_sent_opens_the_window_no_further(seq: int) -> None:
    feed = Feed().listed()
    feed.box.acknowledge(seq)
    for number in range(100):
        feed.put(f"n{number}", number)
        assert 0 <= feed.box.in_flight <= WINDOW


keys = st.sampled_from(["n0", "n1", "n2", "n9", "other"])
moves = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys),
        st.tuples(st.just("delete"), keys),
        st.sampled_from([("take", ""), ("answer", ""), ("lose", ""), ("restart", "")]),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(st.integers(0, 12), moves)
def test_whatever_happens_a_worker_ends_with_what_there_is(
    before: int, history: list[tuple[str, str]]
) -> None:
    with small_frames():
        feed = Feed()
        for number in range(before):
            feed.put(f"n{number}", "before")
        feed.listed()
        _play(feed, history)
        feed.settle()
        assert feed.told() == feed.there()


def _play(feed: Feed, history: list[tuple[str, str]]) -> None:
    answers: deque[int | str] = deque()
    for number, (move, key) in enumerate(history):
        match move:
            case "put":
                feed.put(key, number)
            case "delete":
                feed.delete(key)
            case "take":
                if answer := feed.worker.take_one():
                    answers.append(answer)
            case "answer" if answers:
                first = answers.popleft()
                feed.box.acknowledge(first) if isinstance(first, int) else feed.box.begin()
            case "lose" if len(feed.worker.on_the_way) > 1:  # the next one shows the gap
                feed.worker.on_the_way.popleft()
            case "restart":
                answers.clear()
                feed.join()
    for answer in answers:
        feed.box.acknowledge(answer) if isinstance(answer, int) else feed.box.begin()
