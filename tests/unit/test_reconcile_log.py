"""How reconciles ended: the pending keys, and a log that says a thing once."""

from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.queue import ReconcileLog

WARNING, RECOVERED = "reconcile failed", "reconcile recovered"


def said(caplog: pytest.LogCaptureFixture, message: str) -> int:
    return [record.message for record in caplog.records].count(message)


def test_a_reason_that_many_keys_share_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = ReconcileLog()
    for number in range(100):
        log.failed(f"node-{number}", "the cloud is away")
    assert (len(log), said(caplog, WARNING)) == (100, 1)


def test_a_key_that_fails_again_for_the_same_reason_is_not_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ReconcileLog()
    for _ in range(3):
        log.failed("a", "denied")
        log.waiting("a", "waits for the cloud's answer")
    assert said(caplog, WARNING) == 1
    assert log.first(9) == {"a": "denied"}


def test_another_reason_is_logged_and_no_recovery(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = ReconcileLog()
    log.failed("a", "denied")
    log.failed("a", "throttled")
    assert (said(caplog, WARNING), said(caplog, RECOVERED)) == (2, 0)
    assert log.first(9) == {"a": "throttled"}


def test_the_end_of_a_reason_is_logged_once_with_its_last_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log = ReconcileLog()
    for key in ("a", "b"):
        log.failed(key, "denied")
    log.done("a", "done")
    assert said(caplog, RECOVERED) == 0
    log.done("b", "done")
    assert said(caplog, RECOVERED) == 1
    assert (len(log), log.done_count) == (0, 2)


def test_a_reason_that_comes_back_is_news(caplog: pytest.LogCaptureFixture) -> None:
    log = ReconcileLog()
    for _ in range(2):
        log.failed("a", "denied")
        log.done("a", "done")
    assert said(caplog, WARNING) == 2


def test_waiting_is_not_logged_and_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = ReconcileLog()
    log.waiting("a", "waits for the cloud's answer")
    assert log.first(9) == {"a": "waits for the cloud's answer"}
    log.done("a", "done")
    assert (len(log), caplog.records) == (0, [])


def test_the_end_of_waiting_is_no_recovery_of_another_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = ReconcileLog()
    log.failed("a", "x")
    log.waiting("b", "x")
    log.done("b", "done")
    assert said(caplog, RECOVERED) == 0


def test_what_is_logged_is_recent_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(100)
    monkeypatch.setattr("workers.queue.time.monotonic", lambda: float(next(clock)))
    log = ReconcileLog()
    log.waiting("c", "waits")
    for key in ("a", "b"):
        log.failed(key, "denied")
    assert (log.failing, len(log)) == (2, 3)
    for key in ("a", "b", "c"):
        log.done(key, "done")
    assert log.failing == 0
    assert log.recent(110.0) == [
        {"key": "b", "what": "recovered", "why": "it was: denied", "seconds_ago": 4.0},
        {"key": "a", "what": "failed", "why": "denied", "seconds_ago": 8.0},
    ]
    for number in range(50):
        log.failed("a", f"reason {number}")
    assert [entry["why"] for entry in log.recent(200.0)][::9] == ["reason 49", "reason 40"]


moves = st.tuples(
    st.sampled_from(["done", "waiting", "failed"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["one", "two"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(moves, max_size=30))
def test_what_is_pending_is_what_did_not_end_done(history: list[tuple[str, str, str]]) -> None:
    log, pending = ReconcileLog(), set()
    for move, key, why in history:
        match move:
            case "done":
                log.done(key, "done")
                pending.discard(key)
            case "waiting":
                log.waiting(key, f"waits for {why}")
                pending.add(key)
            case "failed":
                log.failed(key, why)
                pending.add(key)
    assert set(log.first(9)) == pending
    assert len(log) == len(pending)
