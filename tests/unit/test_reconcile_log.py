"""How reconciles ended: the pending keys, and a log that says a thing once."""

from itertools import count

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from workers.queue import LINES, Decision, ReconcileLog


@pytest.mark.parametrize(
    ("history", "warnings", "recoveries", "pending"),
    [
        pytest.param("a! b! c!", 1, 0, "a b c", id="many-keys-share-a-reason"),
        pytest.param("a! a a! a a!", 1, 0, "a", id="a-key-fails-again-and-waits-in-between"),
        pytest.param("a! a? ", 2, 0, "a", id="another-reason-is-no-recovery"),
        pytest.param("a! b! -a", 1, 0, "b", id="a-reason-has-a-key-left"),
        pytest.param("a! b! -a -b", 1, 1, "", id="the-last-key-of-a-reason"),
        pytest.param("a! -a a! -a", 2, 2, "", id="a-reason-comes-back"),
        pytest.param("a! a? a!", 3, 0, "a", id="another-reason-and-back"),
        pytest.param("a -a", 0, 0, "", id="waiting-is-not-logged"),
        pytest.param("a! b -b", 1, 0, "a", id="the-end-of-waiting-is-no-recovery-of-another"),
    ],
)
def test_a_reason_is_logged_once_until_its_last_key_recovered(
    history: str, warnings: int, recoveries: int, pending: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`a!` and `a?` are failures for two reasons, `a` waits for the first one, `-a` is done."""
    caplog.set_level("INFO")
    log = ReconcileLog()
    for word in history.split():
        match word[0], word[-1]:
            case "-", key:
                log.done(key, "done")
            case key, "!" | "?" as why:
                log.failed(key, why)
            case key, _:
                log.waiting(key, "!")
    said = [record.message for record in caplog.records]
    assert said.count("reconcile failed") == warnings
    assert said.count("reconcile recovered") == recoveries
    assert len(said) == warnings + recoveries
    assert " ".join(log.first(9)) == pending


def test_one_namespace_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A tenant changes a refused annotation for ever, and each time the reason is another."""
    log = ReconcileLog()
    for number in range(20 * LINES):
        log.failed("flood/web", f"annotation {number} is not valid", "refused")
    assert len(caplog.records) <= LINES + 1
    log.failed("honest/web", "annotation 1 is wrong", "refused")
    log.failed("node-1", "the cloud does not answer")
    assert len(caplog.records) <= LINES + 3
    assert [vars(record)["key"] for record in caplog.records[-2:]] == ["honest/web", "node-1"]


def test_what_is_logged_is_recent_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(100)
    monkeypatch.setattr("workers.queue.time.monotonic", lambda: next(clock) - 0.54)
    log = ReconcileLog()
    log.waiting("c", "waits")
    for key in ("a", "b"):
        log.failed(key, "denied")
    assert (log.failing, len(log)) == (2, 3)
    for key in ("a", "b", "c"):
        log.done(key, "done")
    assert (log.failing, log.done_count) == (0, 3)
    assert (log.last("d"), log.last("c")) == (None, Decision("done", "done", 105.46))
    assert [*map(dict, log.recent(110.0))] == [
        {"key": "b", "what": "recovered", "why": "it was: denied", "seconds_ago": 5.5},
        {"key": "a", "what": "failed", "why": "denied", "seconds_ago": 9.5},
    ]
    for number in range(50):
        log.failed("a", f"reason {number}")
    assert [entry["why"] for entry in log.recent(200.0)][::9] == ["reason 49", "reason 40"]


def test_the_last_decision_on_a_key_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.queue.time.monotonic", lambda: 100.0)
    log = ReconcileLog()
    log.waiting("a", "no route yet")
    log.failed("b", "denied")
    log.failed("c", "no such zone", "refused")
    assert [log.last(key) for key in "abc"] == [
        Decision("waiting", "no route yet", 100.0),
        Decision("failed", "denied", 100.0),
        Decision("refused", "no such zone", 100.0),
    ]
    assert log.first(9) == {"a": "no route yet", "b": "denied", "c": "no such zone"}
    assert log.first(2) == {"a": "no route yet", "b": "denied"}
    log.failed("a", "denied")
    assert [*log.first(9)] == ["a", "b", "c"]  # the longest wait first, whatever the reason
    group = {"why": "denied", "is_failure": True, "count": 2, "seconds": 7, "names": ["b", "a"]}
    assert log.groups(107.0)[0] == group


def test_the_decisions_of_before_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.queue.DECISIONS_KEPT", 2)
    log = ReconcileLog()
    for key in "abac":
        log.done(key, "done")
    assert [key for key in "abc" if log.last(key)] == ["a", "c"]


moves = st.tuples(
    st.sampled_from(["done", "waiting", "failed"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["one", "two"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(moves, max_size=30))
@example([("failed", "a", "one"), ("failed", "a", "two")])
@example([("waiting", "a", "one"), ("waiting", "a", "two")])
def test_what_is_pending_is_what_did_not_end_done(history: list[tuple[str, str, str]]) -> None:
    log, pending = ReconcileLog(), dict[str, tuple[str, bool]]()
    for move, key, why in history:
        match move:
            case "done":
                log.done(key, "done")
                pending.pop(key, None)
            case "waiting":
                log.waiting(key, f"waits for {why}")
                if not pending.get(key, ("", False))[1]:
                    pending[key] = (f"waits for {why}", False)
            case "failed":
                log.failed(key, why)
                pending[key] = (why, True)
    assert {key: why for key, (why, _) in pending.items()} == log.first(9)
    assert [key in log for key in "abc"] == [key in pending for key in "abc"]
    assert (len(log), log.failing) == (len(pending), sum(fails for _, fails in pending.values()))
    shown = {(it["why"], it["is_failure"]): {*it["names"]} for it in log.groups(0.0)}
    assert shown == {
        reason: {key for key in pending if pending[key] == reason} for reason in pending.values()
    }


def test_a_reason_names_some_of_its_keys() -> None:
    log = ReconcileLog()
    for key in "abcdefgh":
        log.failed(key, "denied")
    [group] = log.groups(0.0)
    assert (group["count"], group["names"]) == (8, ["a", "b", "c", "d", "e"])


def test_what_goes_on_failing_is_reported_every_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr("workers.queue.time.monotonic", lambda: now)
    log = ReconcileLog()
    for key in "abc":
        log.failed(key, "the cloud does not answer")
    log.failed("d", "wrong token")
    log.waiting("e", "waits")
    caplog.clear()
    for now in range(1000, 1200):
        log.summarize(now)
    reported = [vars(record) for record in caplog.records]
    assert [(one["message"], one["seconds"]) for one in reported] == [
        ("reconciles still fail", seconds) for seconds in (60, 120, 180)
    ]
    fields = ("why", "objects", "pending")
    assert {tuple(one[name] for name in fields) for one in reported} == {
        ("the cloud does not answer", 3, 5)
    }
    for key in "abcd":
        log.done(key, "done")
    caplog.clear()
    log.summarize(2000.0)
    assert caplog.records == []


def test_failures_of_one_namespace_keep_no_other_out_of_what_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A tenant may have as many reasons as Services, each of several ones."""
    monkeypatch.setattr("workers.queue.time.monotonic", lambda: 1000.0)
    log = ReconcileLog()
    for number in range(100):
        log.failed(f"hostile/{number}", f"no such group {number // 2}")
    log.failed("honest/web", "no such subnet")
    caplog.clear()
    for now in range(1000, 1181):
        log.summarize(now)
    reasons = [vars(record)["why"] for record in caplog.records]
    assert reasons == ["no such group 0", "no such subnet", "no such group 0"]


def test_what_its_owner_has_to_change_is_reported_every_hour(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr("workers.queue.time.monotonic", lambda: now)
    log = ReconcileLog()
    log.failed("a", "no such zone", "refused")
    for now in range(0, 7300, 10):
        log.failed("a", "no such zone", "refused")
        log.summarize(now)
    times = [vars(record).get("seconds", 0) for record in caplog.records]
    assert times == [0, 3600, 7200]
