"""What a mailbox does when the snapshot is disturbed, or the socket does not take a frame."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.supervisor.mailbox import WINDOW

from .telling import Feed, small_frames


def test_an_object_that_goes_away_during_its_snapshot_is_not_left_over() -> None:
    with small_frames():
        feed = Feed()
        for number in range(5):
            feed.put(f"n{number}", "a value")
        feed.listed()
        feed.delete("n0")  # has left
        feed.delete("n4")  # has not
        feed.settle()
    assert feed.told() == feed.there()
    assert sorted(feed.told()) == ["n1", "n2", "n3"]


def test_nothing_is_sent_before_the_snapshot_can_be() -> None:
    feed = Feed()
    feed.put("a", 1)
    feed.move("a")
    feed.box.acknowledge(1)
    feed.box.flush()
    assert not feed.worker.on_the_way
    feed.put("b", 1)
    feed.listed().settle()
    assert feed.told() == {"b": 1}


def test_a_frame_that_the_socket_does_not_take_is_sent_later() -> None:
    feed = Feed().listed()
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
    feed = Feed().listed()
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
    feed = Feed().listed()
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


keys = st.sampled_from(["n0", "n1", "n2", "n9"])
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "delete", "move"]), keys),
        st.sampled_from([("take", ""), ("full", ""), ("free", ""), ("again", "")]),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(st.integers(0, 12), steps)
def test_deletions_moves_and_a_full_socket_at_any_time_lose_nothing(
    before: int, history: list[tuple[str, str]]
) -> None:
    with small_frames():
        feed = Feed()
        for number in range(before):
            feed.put(f"n{number}", "before")
        feed.listed()
        for number, (step, key) in enumerate(history):
            match step:
                case "put":
                    feed.put(key, number)
                case "delete":
                    feed.delete(key)
                case "move":
                    feed.move(*feed.elsewhere ^ {key})
                case "take":
                    feed.deliver()
                case "full" | "free":
                    feed.worker.is_there = step == "free"
                case "again":
                    feed.box.try_again()
        feed.worker.is_there = True
        feed.box.try_again()
        feed.settle()
        assert feed.told() == feed.there()
        assert feed.box.is_caught_up
