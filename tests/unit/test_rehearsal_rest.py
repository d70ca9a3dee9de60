"""When a rehearsal is over: what is still coming, and what only a person or a long wait changes."""

import pytest

from ccm.model.objects import Json
from ccm.dry_run.plan import _is_idle

IDLE: Json = {
    "state": "running",
    "queue": {"ready": 0, "oldest_seconds": 0.0, "next_seconds": None},
}


def status(worker: Json, *candidates: tuple[str, str]) -> Json:
    listed = [{"node": "n", "verdict": verdict, "reason": why} for verdict, why in candidates]
    return {"workers": [worker], "deletions": {"candidates": listed}}


@pytest.mark.parametrize(
    ("worker", "is_idle"),
    [
        pytest.param(IDLE, True, id="nothing-to-do"),
        pytest.param({**IDLE, "refresh_passes": 1}, True, id="nodes-were-compared"),
        pytest.param({**IDLE, "refresh_passes": 0}, False, id="nodes-not-compared-yet"),
        pytest.param({"state": "running"}, False, id="not-heard-yet"),
        pytest.param({**IDLE, "state": "syncing"}, False, id="not-there-yet"),
        pytest.param({"state": "skipped"}, True, id="skipped"),
        pytest.param({"state": "failed"}, True, id="refused"),
        pytest.param({**IDLE, "queue": {**IDLE["queue"], "ready": 1}}, False, id="queued"),
        pytest.param({**IDLE, "queue": {**IDLE["queue"], "oldest_seconds": 1}}, False, id="busy"),
        pytest.param({**IDLE, "queue": {**IDLE["queue"], "next_seconds": 2}}, False, id="soon"),
        pytest.param({**IDLE, "queue": {**IDLE["queue"], "next_seconds": 99}}, True, id="later"),
    ],
)
def test_a_worker_is_at_rest_when_it_has_done_what_it_can_do_soon(
    worker: Json, is_idle: bool
) -> None:
    assert _is_idle(status(worker)) is is_idle


@pytest.mark.parametrize(
    ("verdict", "reason", "is_idle"),
    [
        ("permit", "with the next round", False),
        ("not yet", "not-confirmed", False),
        ("not yet", "budget", True),
        ("held", "many-vanished", True),
        ("never", "ready", True),
    ],
)
def test_a_deletion_is_waited_for_unless_only_the_budget_or_a_person_lets_it_go_on(
    verdict: str, reason: str, is_idle: bool
) -> None:
    assert _is_idle(status(IDLE, (verdict, reason))) is is_idle
