"""When a dry run is over: what is still coming, and what only a person or a long wait changes."""

import pytest

from ccm.dry_run.plan import is_idle
from ccm.model.conform import conform
from ccm.model.objects import Json
from ccm.model.status import DeletionCandidate, WorkerReport

IDLE: Json = {"queue": {"ready": 0, "parked": 0, "oldest_seconds": 0.0, "next_seconds": None}}


@pytest.mark.parametrize(
    ("controller", "expected"),
    [
        pytest.param(IDLE, True, id="nothing-to-do"),
        pytest.param({**IDLE, "refresh_passes": 1}, True, id="nodes-were-compared"),
        pytest.param({**IDLE, "refresh_passes": 0}, False, id="nodes-not-compared-yet"),
        pytest.param({"queue": {**IDLE["queue"], "ready": 1}}, False, id="queued"),
        pytest.param({"queue": {**IDLE["queue"], "oldest_seconds": 1}}, False, id="busy"),
        pytest.param({"queue": {**IDLE["queue"], "parked": 1}}, False, id="awaits-the-cloud"),
        pytest.param({"queue": {**IDLE["queue"], "next_seconds": 2}}, False, id="soon"),
        pytest.param({"queue": {**IDLE["queue"], "next_seconds": 99}}, True, id="later"),
    ],
)
def test_a_controller_is_idle_when_it_has_done_what_it_can_do_soon(
    controller: Json, expected: bool
) -> None:
    assert is_idle([conform(WorkerReport, controller)], []) is expected


@pytest.mark.parametrize(
    ("verdict", "reason", "expected"),
    [
        ("permit", "with the next round", False),
        ("not yet", "not-confirmed", False),
        ("not yet", "budget", True),
        ("held", "many-vanished", True),
        ("never", "ready", True),
    ],
)
def test_a_deletion_is_waited_for_unless_only_the_budget_or_a_person_lets_it_go_on(
    verdict: str, reason: str, expected: bool
) -> None:
    candidate: DeletionCandidate = {"node": "n", "verdict": verdict, "reason": reason}
    assert is_idle([conform(WorkerReport, IDLE)], [candidate]) is expected
