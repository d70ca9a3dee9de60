"""What a worker has not settled, and logs that say a thing once."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.ledger import Ledger

WARNING = "cannot settle"


def said(caplog: pytest.LogCaptureFixture, message: str) -> int:
    return [record.message for record in caplog.records].count(message)


def test_a_reason_that_many_keys_share_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    for number in range(100):
        ledger.fail(f"node-{number}", "the cloud is away")
    assert (len(ledger), said(caplog, WARNING)) == (100, 1)


def test_a_key_that_fails_again_for_the_same_reason_is_not_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = Ledger()
    for _ in range(3):
        ledger.fail("a", "denied")
        ledger.wait("a", "waits for the cloud's answer")
    assert said(caplog, WARNING) == 1
    assert ledger.first(9) == {"a": "denied"}


def test_another_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    ledger.fail("a", "denied")
    ledger.fail("a", "throttled")
    assert said(caplog, WARNING) == 2
    assert ledger.first(9) == {"a": "throttled"}


def test_the_end_of_a_reason_is_logged_once_with_its_last_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    ledger = Ledger()
    for key in ("a", "b"):
        ledger.fail(key, "denied")
    ledger.settle("a")
    assert said(caplog, "settled again") == 0
    ledger.settle("b")
    assert said(caplog, "settled again") == 1
    assert (len(ledger), ledger.settled) == (0, 2)


def test_a_reason_that_comes_back_is_news(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    for _ in range(2):
        ledger.fail("a", "denied")
        ledger.settle("a")
    assert said(caplog, WARNING) == 2


def test_waiting_is_not_logged_and_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ledger = Ledger()
    ledger.wait("a", "waits for the cloud's answer")
    assert ledger.first(9) == {"a": "waits for the cloud's answer"}
    ledger.settle("a")
    assert (len(ledger), caplog.records) == (0, [])


def test_status_shows_some_of_many() -> None:
    ledger = Ledger()
    for number in range(50):
        ledger.wait(f"node-{number}", "waits")
    assert len(ledger.first(20)) == 20


def test_what_is_logged_is_news_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100, 200))
    monkeypatch.setattr("workers.ledger.time.monotonic", lambda: float(next(clock)))
    ledger = Ledger()
    ledger.wait("c", "waits")
    for key in ("a", "b"):
        ledger.fail(key, "denied")
    assert (ledger.failing, len(ledger)) == (2, 3)
    for key in ("a", "b", "c"):
        ledger.settle(key)
    assert ledger.failing == 0
    assert ledger.news(110.0) == [
        {"key": "b", "what": "settled again", "why": "it was: denied", "seconds_ago": 9.0},
        {"key": "a", "what": "cannot settle", "why": "denied", "seconds_ago": 10.0},
    ]
    for number in range(50):
        ledger.fail("a", f"reason {number}")
    assert [entry["why"] for entry in ledger.news(200.0)][::9] == ["reason 49", "reason 40"]


moves = st.tuples(
    st.sampled_from(["settle", "wait", "fail"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["one", "two"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(moves, max_size=30))
def test_what_is_unsettled_is_what_did_not_end_settled(history: list[tuple[str, str, str]]) -> None:
    ledger, unsettled = Ledger(), set()
    for move, key, why in history:
        match move:
            case "settle":
                ledger.settle(key)
                unsettled.discard(key)
            case "wait":
                ledger.wait(key, f"waits for {why}")
                unsettled.add(key)
            case "fail":
                ledger.fail(key, why)
                unsettled.add(key)
    assert set(ledger.first(9)) == unsettled
    assert len(ledger) == len(unsettled)
