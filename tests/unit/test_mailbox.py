"""What a worker is told: newest state only, bounded, gap-proof, whatever the socket takes."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.supervisor.delivery import FRAME_BYTES, WINDOW

from .telling import SharedInformer, small_frames


def test_nothing_is_sent_before_everything_is_listed() -> None:
    feed = SharedInformer()
    feed.nodes.is_listed = True
    feed.box.begin()
    feed.put("a", 1)
    feed.move("a")
    feed.box.acknowledge(1)
    feed.box.flush()
    assert not feed.worker.on_the_way
    assert not feed.box.has_begun
    feed.put("b", 1)
    feed.listed().settle()
    assert feed.told() == {"b": 1}


def test_a_snapshot_has_everything_of_all_kinds() -> None:
    feed = SharedInformer()
    for number in range(100):
        feed.put(f"n{number}", number)
        feed.put(f"s{number}", number, feed.services)
    feed.listed().settle()
    assert feed.told() == feed.there()
    assert feed.worker.store.count("Service") == 100
    assert feed.worker.completed == 1


def test_an_empty_snapshot_is_told_too() -> None:
    feed = SharedInformer().listed()
    feed.settle()
    assert feed.worker.completed == 1


def test_a_snapshot_of_many_frames_is_complete_with_its_last() -> None:
    with small_frames():
        feed = SharedInformer()
        for number in range(15):
            feed.put(f"n{number}", number)
        feed.listed()
        while not feed.worker.completed:
            assert feed.told() == {}
            feed.deliver()
    assert feed.told() == feed.there()


def test_what_belongs_to_another_worker_is_not_told() -> None:
    feed = SharedInformer()
    feed.put("other", 1)
    feed.listed()
    feed.put("other", 2)
    feed.put("mine", 3)
    feed.settle()
    assert feed.told() == {"mine": 3}


def test_a_slow_worker_gets_the_newest_state_and_no_queue_of_old_ones() -> None:
    feed = SharedInformer().listed()
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
    feed = SharedInformer().listed()
    for change in range(50_000):
        feed.put(f"n{change % 1000}", change)
    assert (feed.box.in_flight, len(feed.worker.on_the_way)) == (WINDOW, WINDOW)
    assert feed.box.depth <= 1000
    assert sum(map(len, feed.worker.on_the_way)) < (WINDOW + 1) * FRAME_BYTES
    feed.settle()
    assert feed.told() == feed.there()


def test_a_frame_is_closed_once_it_is_long() -> None:
    feed = SharedInformer()
    for number in range(10):
        feed.put(f"n{number}", "x" * (FRAME_BYTES // 2))
    feed.listed()
    assert all(len(frame) < 2 * FRAME_BYTES for frame in feed.worker.on_the_way)
    feed.settle()
    assert feed.told() == feed.there()


def test_a_lost_frame_is_noticed_and_made_good_by_a_snapshot() -> None:
    feed = SharedInformer().listed()
    feed.settle()
    feed.put("a", 1)
    feed.worker.on_the_way.clear()
    feed.put("b", 2)
    feed.settle()
    assert feed.told() == {"a": 1, "b": 2}


def test_changes_while_the_worker_is_away_are_in_the_snapshot_of_its_successor() -> None:
    feed = SharedInformer().listed()
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
    feed = SharedInformer().listed()
    feed.box.acknowledge(seq)
    for number in range(100):
        feed.put(f"n{number}", number)
        assert 0 <= feed.box.in_flight <= WINDOW


def test_an_object_that_goes_away_during_its_snapshot_is_not_left_over() -> None:
    with small_frames():
        feed = SharedInformer()
        for number in range(5):
            feed.put(f"n{number}", "a value")
        feed.listed()
        feed.delete("n0")  # has left
        feed.delete("n4")  # has not
        feed.settle()
    assert feed.told() == feed.there()
    assert sorted(feed.told()) == ["n1", "n2", "n3"]


def test_a_frame_that_the_socket_does_not_take_is_sent_later() -> None:
    feed = SharedInformer().listed()
    feed.settle()
    feed.worker.is_there = False
    feed.put("a", 1)
    feed.delete("a")
    feed.put("b", 1)
    assert feed.box.in_flight == 0
    assert not feed.box.is_caught_up
    feed.worker.is_there = True
    feed.box.try_again()
    feed.settle()
    assert feed.told() == {"b": 1}
    assert feed.box.is_caught_up


def test_a_full_socket_is_not_tried_at_each_change() -> None:
    feed = SharedInformer().listed()
    feed.settle()
    tries: list[bytes] = []

    def refuse(frame: bytes) -> bool:
        tries.append(frame)
        return False

    feed.box._send = refuse
    for number in range(1000):
        feed.put(f"n{number}", number)
    assert len(tries) == 1
    assert feed.box.depth == 1000


def test_a_key_that_moves_away_is_named_although_a_snapshot_begins_anew() -> None:
    feed = SharedInformer().listed()
    feed.put("a", 1)
    feed.settle()
    for number in range(WINDOW):
        feed.put("b", number)
    feed.move("a")  # waits behind a full window
    feed.worker.on_the_way.clear()
    feed.box.begin()
    feed.settle()
    assert feed.worker.moved == ["a"]
    assert feed.told() == {"b": WINDOW - 1}


keys = st.sampled_from(["n0", "n1", "n2", "n9", "other"])
others = ["take", "answer", "lose", "restart", "full", "free", "again"]
moves = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "move"]), keys)
    | st.tuples(st.sampled_from(others), st.just("")),
    max_size=60,
)


@settings(max_examples=500)
@given(st.integers(0, 12), moves)
def test_whatever_happens_a_worker_ends_with_what_there_is(
    before: int, history: list[tuple[str, str]]
) -> None:
    with small_frames():
        feed = SharedInformer()
        for number in range(before):
            feed.put(f"n{number}", "before")
        feed.listed()
        _play(feed, history)
        feed.worker.is_there = True
        feed.box.try_again()
        feed.settle()
        assert feed.told() == feed.there()
        assert feed.box.is_caught_up


def _play(feed: SharedInformer, history: list[tuple[str, str]]) -> None:
    answers: deque[int | str] = deque()  # on their way back
    for number, (move, key) in enumerate(history):
        if key:
            _change(feed, move, key, number)
        else:
            _carry(feed, move, answers)
    for answer in answers:
        _hear(feed, answer)


def _change(feed: SharedInformer, move: str, key: str, number: int) -> None:
    """What happens to the objects."""
    match move:
        case "put":
            feed.put(key, number)
        case "delete":
            feed.delete(key)
        case "move":
            feed.move(*feed.elsewhere ^ {key})


def _carry(feed: SharedInformer, move: str, answers: deque[int | str]) -> None:
    """What happens to frames and answers on their way."""
    match move:
        case "take":
            if answer := feed.worker.take_one():
                answers.append(answer)
        case "answer" if answers:
            _hear(feed, answers.popleft())
        case "lose" if len(feed.worker.on_the_way) > 1:  # the next one shows the gap
            feed.worker.on_the_way.popleft()
        case "restart":
            answers.clear()
            feed.join()
        case "full" | "free":
            feed.worker.is_there = move == "free"
        case "again":
            feed.box.try_again()


def _hear(feed: SharedInformer, answer: int | str) -> None:
    feed.box.acknowledge(answer) if isinstance(answer, int) else feed.box.begin()
