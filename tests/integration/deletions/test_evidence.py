"""A machine that is gone: what counts as evidence of it, and what starts the evidence over."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ccm.bus.frames import ProposeDeletions

from .cluster import POLICY, Cluster


@pytest.mark.parametrize("seconds", [5.0, 30.0, 45.0])
def test_the_cloud_has_to_say_it_for_the_whole_confirmation_period(
    tmp_path: Path, seconds: float
) -> None:
    policy = replace(POLICY, confirmation=seconds)
    cluster = Cluster(tmp_path / "deletions.json", policy).fill(3).kill("n0")
    assert cluster.report(["n0"]) == []
    for _ in range(int(seconds / 5.0) - 1):
        assert cluster.advance().report(["n0"]) == []
        assert cluster.why("n0") == "not-confirmed"
    assert cluster.advance().report(["n0"]) == ["n0"]


def test_what_the_cloud_says_to_have_ended_for_ever_is_confirmed_by_that(tmp_path: Path) -> None:
    """Everything else still holds: it is not Ready, there is no mass, all workers were heard."""
    policy = replace(POLICY, confirmation=30.0)
    cluster = Cluster(tmp_path / "deletions.json", policy).fill(9).kill("n0", "n1")
    cluster.report(worker="node-1.1")
    cluster.advance(1.0)
    assert cluster.report(["n0", "n1"], is_final=True) == []
    assert cluster.why("n0") == "workers-not-heard"
    cluster.advance(1.0).report(worker="node-1.1")
    assert cluster.report(["n0"], is_final=True) == ["n0"]


def test_only_the_last_answer_can_be_final(tmp_path: Path) -> None:
    policy = replace(POLICY, confirmation=30.0)
    cluster = Cluster(tmp_path / "deletions.json", policy).fill(9).kill("n0")
    cluster.report(worker="node-1.1")
    assert cluster.advance(1.0).report(["n0"], is_final=True) == []
    cluster.report(worker="node-1.1")
    assert cluster.report(["n0"]) == []
    assert cluster.why("n0") == "not-confirmed"


def test_a_permit_names_the_uid_and_the_evidence(cluster: Cluster) -> None:
    cluster.fill(3).kill("n0").report(["n0"])
    message = ProposeDeletions(
        1, [["n0", "u0", "no such machine", cluster.advance().now, False]], []
    )
    assert cluster.governor.on_message("node-0.1", message).nodes == [
        ["n0", "u0", "no such machine"]
    ]


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda c: c.report(not_gone=["n0"]), id="the-cloud-said-otherwise"),
        pytest.param(
            lambda c: (
                c.report(not_gone=["n0"], worker="node-1.1"),
                c.governor.forget("node-1.1"),
            ),
            id="to-another-worker",
        ),
        pytest.param(lambda c: c.report(), id="a-pass-without-a-word-of-it"),
        pytest.param(lambda c: c.governor.forget("node-0.1"), id="the-worker-ended"),
        pytest.param(lambda c: c.restart(), id="the-supervisor-restarted"),
        pytest.param(lambda c: c.change("n0", uid="new"), id="it-was-created-again"),
        pytest.param(lambda c: c.advance(60.0), id="silence"),
        pytest.param(
            lambda c: c.governor.on_message("node-0.1", ProposeDeletions(1, [["n0"]], [])),
            id="the-worker-talked-nonsense",
        ),
    ],
)
def test_whatever_breaks_the_evidence_starts_it_over(
    cluster: Cluster, between: Callable[[Cluster], object]
) -> None:
    cluster.fill(9).kill("n0").report(["n0"])
    between(cluster.advance(2.5))
    assert cluster.advance(2.5).report(["n0"]) == []
    assert cluster.advance().report(["n0"]) == ["n0"]


def test_what_was_said_of_a_name_is_no_evidence_against_a_machine(tmp_path: Path) -> None:
    """A Node gets its provider ID while the cloud has yet to list its new machine."""
    policy = replace(POLICY, confirmation=30.0)
    cluster = Cluster(tmp_path / "deletions.json", policy).fill(3).kill("n0")
    cluster.change("n0", has_provider_id=False)
    for _ in range(10):
        assert cluster.report(["n0"]) == []
        cluster.advance()
    asked_at = cluster.now
    cluster.advance(2.0).change("n0", has_provider_id=True)
    late = ProposeDeletions(1, [["n0", "u0", "no such name", asked_at, False]], [])
    assert cluster.governor.on_message("node-0.1", late).nodes == []
    assert cluster.why("n0") == "not-confirmed"
    for _ in range(5):
        assert cluster.advance().report(["n0"]) == []
    assert cluster.advance().report(["n0"]) == ["n0"]


def test_the_end_of_another_worker_breaks_no_evidence(cluster: Cluster) -> None:
    cluster.fill(9).kill("n0").report(["n0"])
    cluster.governor.forget("node-1.1")
    assert cluster.advance().report(["n0"]) == ["n0"]


def test_another_worker_that_has_not_looked_since_is_waited_for_but_not_for_ever(
    cluster: Cluster,
) -> None:
    cluster.fill(9).kill("n0").report(worker="node-1.1")
    cluster.advance(1.0).report(["n0"])
    assert cluster.advance().report(["n0"]) == []
    assert cluster.why("n0") == "workers-not-heard"
    for _ in range(10):
        assert cluster.advance().report(["n0"]) == []
    assert cluster.advance().report(["n0"]) == ["n0"]
