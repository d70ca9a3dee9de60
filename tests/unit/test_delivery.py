"""What a worker is sent: newest state only, bounded, gap-proof, whatever the socket takes."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.bus.frames import Ack, Objects, Resync, decode
from ccm.supervisor.delivery import (
    ENTRY_SIZE,
    FRAME_SIZE_LIMIT,
    MAX_UNACKED_FRAMES,
    Ownership,
    ProjectedStore,
    owner,
)
from tests.support.properties import examples

from .delivery_world import World, small_frames


def test_nothing_is_sent_before_everything_has_synced() -> None:
    world = World()
    world.nodes.has_synced = True
    world.queue.send_snapshot()
    world.put("a", 1)
    world.move("a")
    world.queue.acknowledge(0, 1)
    world.queue.flush()
    assert not world.worker.in_transit
    assert not world.queue.has_begun
    world.put("b", 1)
    world.listed().settle()
    assert world.known() == {"b": 1}


def test_a_snapshot_has_everything_of_all_kinds() -> None:
    world = World()
    for number in range(100):
        world.put(f"n{number}", number)
        world.put(f"s{number}", number, world.services)
    world.listed().settle()
    assert world.known() == world.owned()
    assert world.worker.store.count("Service") == 100
    assert world.worker.completed == 1


def test_a_snapshot_of_many_frames_is_complete_with_its_last() -> None:
    with small_frames():
        world = World()
        for number in range(15):
            world.put(f"n{number}", number)
        world.listed()
        while not world.worker.completed:
            assert world.known() == {}
            world.deliver()
    assert world.known() == world.owned()


def test_a_worker_that_never_answers_costs_bounded_memory() -> None:
    world = World().listed()
    for change in range(50_000):
        world.put(f"n{change % 1000}", change)
    assert (world.queue.in_flight, len(world.worker.in_transit)) == (
        MAX_UNACKED_FRAMES,
        MAX_UNACKED_FRAMES,
    )
    assert world.queue.depth <= 1000
    assert sum(map(len, world.worker.in_transit)) < (MAX_UNACKED_FRAMES + 1) * FRAME_SIZE_LIMIT
    world.settle()
    assert world.known() == world.owned()


def test_a_frame_is_closed_once_it_is_long() -> None:
    world = World()
    for number in range(10):
        world.put(f"n{number}", "x" * (FRAME_SIZE_LIMIT // 2))
    world.listed()
    assert all(len(frame) < 2 * FRAME_SIZE_LIMIT for frame in world.worker.in_transit)
    world.settle()
    assert world.known() == world.owned()


def test_names_without_values_fill_a_frame_as_well() -> None:
    world = World()
    names = [f"node-{number}-{'x' * 200}" for number in range(50_000)]
    for name in names:
        world.put(name, 1)
    world.listed()
    world.settle()
    world.move(*names)
    assert max(map(len, world.worker.in_transit)) < 4 * FRAME_SIZE_LIMIT
    world.settle()
    assert world.known() == world.owned() == {}


def test_a_lost_frame_is_noticed_and_made_good_by_a_snapshot() -> None:
    world = World().listed()
    world.settle()
    world.put("a", 1)
    world.worker.in_transit.clear()
    world.put("b", 2)
    world.settle()
    assert world.known() == {"a": 1, "b": 2}


def test_an_answer_to_a_frame_of_an_earlier_snapshot_says_nothing_about_the_newest() -> None:
    world = World().listed()
    earlier = world.worker.take_one()
    assert earlier
    world.queue.send_snapshot()
    world.hear(earlier)
    assert not world.queue.is_caught_up
    world.settle()
    assert world.queue.is_caught_up


@pytest.mark.parametrize("seq", [-1, 0, 10**9])
def test_an_answer_to_a_frame_that_was_never_sent_opens_the_window_no_further(seq: int) -> None:
    world = World().listed()
    world.queue.acknowledge(1, seq)
    for number in range(100):
        world.put(f"n{number}", number)
        assert 0 <= world.queue.in_flight <= MAX_UNACKED_FRAMES


def test_a_full_socket_is_not_tried_at_each_change() -> None:
    world = World().listed()
    world.settle()
    tries: list[bytes] = []

    def refuse(frame: bytes) -> bool:
        tries.append(frame)
        return False

    world.queue._send = refuse
    for number in range(1000):
        world.put(f"n{number}", number)
    assert len(tries) == 1
    assert world.queue.depth == 1000


def test_changes_that_waited_leave_together_and_each_frame_counts() -> None:
    world = World().listed()
    assert world.queue.frames_sent == 1
    world.settle()
    world.worker.is_reachable = False
    for number in range(10):
        world.put(f"n{number}", number)
    world.worker.is_reachable = True
    world.queue.retry()
    assert (world.queue.frames_sent, world.queue.in_flight, world.queue.depth) == (2, 1, 0)
    world.put("n0", "again")
    assert (world.queue.frames_sent, world.queue.in_flight) == (3, 2)


def test_each_frame_says_how_often_the_api_server_was_restored() -> None:
    world, restores = World().listed(), []
    for _ in range(3):
        frame = decode(world.worker.in_transit[-1])
        assert isinstance(frame, Objects)
        restores.append(frame.restores)
        world.queue.on_restored()
    assert restores == [0, 1, 2]


@pytest.mark.parametrize(("less", "frames"), [(0, 3), (1, 2)])
def test_a_frame_that_is_just_long_enough_is_closed(less: int, frames: int) -> None:
    world = World()
    for key in "abc":
        rest = len('{"is":""}') + 2 * len(key) + ENTRY_SIZE
        world.put(key, "x" * (FRAME_SIZE_LIMIT - rest - less))
    world.listed()
    assert len(world.worker.in_transit) == frames


def test_a_store_of_the_same_kind_for_others_is_another_one() -> None:
    world = World()
    assert world.queue.reads(world.nodes)
    assert not world.queue.reads(ProjectedStore("Node"))


def test_a_key_that_moves_away_is_named_although_a_snapshot_begins_again() -> None:
    world = World().listed()
    world.put("a", 1)
    world.settle()
    for number in range(MAX_UNACKED_FRAMES):
        world.put("b", number)
    world.move("a")  # waits behind a full window
    world.worker.in_transit.clear()
    world.queue.send_snapshot()
    world.settle()
    assert world.worker.moved == ["a"]
    assert world.known() == {"b": MAX_UNACKED_FRAMES - 1}


def test_a_key_that_was_taken_away_is_named_again_by_a_snapshot_that_overtakes_the_answer() -> None:
    """As when the API server is restored meanwhile: nobody awaits answers to frames before."""
    world = three()
    world.move("a")
    world.move("a", "b")
    world.queue.on_restored()
    for _ in "ab":
        world.worker.in_transit.popleft()  # what named it
    world.settle()
    assert world.worker.moved == ["a", "b"]
    world.queue.send_snapshot()
    world.settle()
    assert world.worker.moved == ["a", "b"]


def test_a_snapshot_names_nothing_of_what_others_own() -> None:
    world = World()
    for number in range(10):
        world.put(f"n{number}", number)
    world.move("n1", "n2")
    world.listed().settle()
    assert world.known() == world.owned()
    assert world.worker.moved == []


# Keys that move from one worker to another while both run.


def three() -> World:
    """A worker that knows a, b and c."""
    world = World().listed()
    for key in "abc":
        world.put(key, 1)
    world.settle()
    return world


def test_a_key_that_went_elsewhere_is_taken_away_and_named() -> None:
    world = three()
    world.move("a", "c")
    world.settle()
    assert world.known() == {"b": 1}
    assert sorted(world.worker.moved) == ["a", "c"]


def test_a_deleted_key_is_not_named_as_moved() -> None:
    world = three()
    world.delete("a")
    world.settle()
    assert (world.known(), world.worker.moved) == ({"b": 1, "c": 1}, [])


def test_a_slow_worker_is_not_caught_up() -> None:
    world = three()
    for number in range(MAX_UNACKED_FRAMES + 1):
        world.put("a", number)
    world.move("b")
    before = world.queue.is_caught_up
    world.settle()
    assert (before, world.queue.is_caught_up) == (False, True)
    assert world.worker.moved == ["b"]


def test_a_division_that_changes_nothing_and_what_others_own_tell_nothing() -> None:
    world = three()
    frames = world.queue.frames_sent
    world.put("other", 1)
    world.move("other", "someone-else")
    assert world.queue.frames_sent == frames


def test_a_node_is_a_workers_that_owns_it_in_each_division_and_all_else_is_each_workers() -> None:
    both, one = ("node-0", "node-1", "node-2"), ("node-0", "node-1")
    names, owns = [f"n{number}" for number in range(50)], Ownership("node-1", (both, one))
    owned = [name for name in names if owner(name, both) == "node-1" == owner(name, one)]
    assert [name for name in names if owns("Node", name)] == owned
    assert 0 < len(owned) < len(names)
    assert all(owns("Service", name) for name in names)


keys = st.sampled_from(["n0", "n1", "n2", "n9", "other"])
others = ["take", "answer", "lose", "restart", "full", "free", "again"]
moves = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "move"]), keys)
    | st.tuples(st.sampled_from(others), st.just("")),
    max_size=60,
)


@examples(500)
@given(st.integers(0, 12), moves)
def test_whatever_happens_a_worker_ends_with_what_there_is(
    before: int, history: list[tuple[str, str]]
) -> None:
    with small_frames():
        world = World()
        for number in range(before):
            world.put(f"n{number}", "before")
        world.listed()
        _play(world, history)
        world.worker.is_reachable = True
        world.queue.retry()
        world.settle()
        assert world.known() == world.owned()
        assert world.queue.is_caught_up
        assert world.worker.completed


def _play(world: World, history: list[tuple[str, str]]) -> None:
    answers: deque[Ack | Resync] = deque()  # on their way back
    for number, (move, key) in enumerate(history):
        if key:
            _change(world, move, key, number)
        else:
            _carry(world, move, answers)
    for answer in answers:
        world.hear(answer)


def _change(world: World, move: str, key: str, number: int) -> None:
    """What happens to the objects."""
    match move:
        case "put":
            world.put(key, number)
        case "delete":
            world.delete(key)
        case "move":
            world.move(*world.elsewhere ^ {key})


def _carry(world: World, move: str, answers: deque[Ack | Resync]) -> None:
    """What happens to frames and answers on their way."""
    match move:
        case "take":
            if answer := world.worker.take_one():
                answers.append(answer)
        case "answer" if answers:
            world.hear(answers.popleft())
        case "lose" if len(world.worker.in_transit) > 1:  # the next one shows the gap
            world.worker.in_transit.popleft()
        case "restart":
            answers.clear()
            world.restart()
        case "full" | "free":
            world.worker.is_reachable = move == "free"
        case "again":
            world.queue.retry()
