"""Keys that move from one worker to another while both run."""

from ccm.supervisor.delivery import WINDOW

from .telling import SharedInformer


def three() -> SharedInformer:
    """A worker that knows a, b and c."""
    feed = SharedInformer().listed()
    for key in "abc":
        feed.put(key, 1)
    feed.settle()
    return feed


def test_a_key_that_went_elsewhere_is_taken_away_and_named() -> None:
    feed = three()
    feed.move("a", "c")
    feed.settle()
    assert feed.told() == {"b": 1}
    assert sorted(feed.worker.moved) == ["a", "c"]


def test_a_deleted_key_is_not_named_as_moved() -> None:
    feed = three()
    feed.delete("a")
    feed.settle()
    assert (feed.told(), feed.worker.moved) == ({"b": 1, "c": 1}, [])


def test_a_key_that_comes_back_is_told_as_it_is_now() -> None:
    feed = three()
    feed.move("a")
    feed.settle()
    feed.put("a", 2)
    feed.settle()
    assert feed.told() == {"b": 1, "c": 1}
    feed.move()
    feed.settle()
    assert feed.told() == {"a": 2, "b": 1, "c": 1}


def test_the_mailbox_is_caught_up_once_the_worker_gave_the_key_up() -> None:
    feed = three()
    caught_up = [feed.box.is_caught_up]
    feed.move("a")
    caught_up.append(feed.box.is_caught_up)
    feed.settle()
    caught_up.append(feed.box.is_caught_up)
    assert caught_up == [True, False, True]


def test_a_slow_worker_is_not_caught_up() -> None:
    feed = three()
    for number in range(WINDOW + 1):
        feed.put("a", number)
    feed.move("b")
    before = feed.box.is_caught_up
    feed.settle()
    assert (before, feed.box.is_caught_up) == (False, True)
    assert feed.worker.moved == ["b"]


def test_a_division_that_changes_nothing_tells_nothing() -> None:
    feed = three()
    frames = feed.box.frames_sent
    feed.move("somebody-else")
    assert feed.box.frames_sent == frames
