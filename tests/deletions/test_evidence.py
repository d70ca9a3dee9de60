"""A machine that is gone: what counts as evidence of it, and what starts the evidence over."""

from collections.abc import Callable

import pytest

from ccm.bus.frames import ProposeDeletions

from .site import Site


@pytest.mark.parametrize("size", [1, 2, pytest.param(3, id="NL4-NL6-NL13"), 100])
def test_a_terminated_machine_goes_with_the_second_round(site: Site, size: int) -> None:
    site.fill(size).kill("n0")
    assert site.round(["n0"]) == []
    assert site.later().round(["n0"]) == ["n0"]


def test_a_permit_names_the_uid_and_the_evidence(site: Site) -> None:
    site.fill(3).kill("n0").round(["n0"])
    message = ProposeDeletions(1, [["n0", "u0", "no such machine", site.later().now]], [])
    assert site.governor.on_message("node-0.1", message).nodes == [["n0", "u0", "no such machine"]]


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda site: site.round(not_gone=["n0"]), id="the-cloud-said-otherwise"),
        pytest.param(
            lambda site: (
                site.round(not_gone=["n0"], worker="node-1.1"),
                site.governor.forget("node-1.1"),
            ),
            id="to-another-worker",
        ),
        pytest.param(lambda site: site.round(), id="a-round-without-a-word-of-it"),
        pytest.param(lambda site: site.governor.forget("node-0.1"), id="the-worker-ended"),
        pytest.param(lambda site: site.restart(), id="the-supervisor-restarted"),
        pytest.param(lambda site: site.change("n0", uid="new"), id="it-was-created-anew"),
        pytest.param(lambda site: site.later(60.0), id="silence"),
        pytest.param(
            lambda site: site.governor.on_message("node-0.1", ProposeDeletions(1, [["n0"]], [])),
            id="the-worker-talked-nonsense",
        ),
    ],
)
def test_whatever_breaks_the_evidence_starts_it_over(
    site: Site, between: Callable[[Site], object]
) -> None:
    site.fill(9).kill("n0").round(["n0"])
    between(site.later(2.5))
    assert site.later(2.5).round(["n0"]) == []
    assert site.later().round(["n0"]) == ["n0"]


def test_the_end_of_another_worker_breaks_no_evidence(site: Site) -> None:
    site.fill(9).kill("n0").round(["n0"])
    site.governor.forget("node-1.1")
    assert site.later().round(["n0"]) == ["n0"]


def test_a_node_that_was_ready_for_a_moment_starts_over(site: Site) -> None:
    site.fill(9).kill("n0").round(["n0"])
    site.change("n0", is_ready=True)
    site.later(2.0).round(worker="node-1.1")
    site.kill("n0")
    site.later(3.0).round(worker="node-1.1")
    assert site.round(["n0"]) == []
    assert site.why("n0") == "not-confirmed"


@pytest.mark.parametrize(
    ("status", "why"),
    [
        pytest.param({"is_ready": True}, "ready", id="NL5-ready"),
        pytest.param({"is_foreign": True}, "foreign", id="foreign"),
        pytest.param({"has_provider_id": False}, "no-provider-id", id="NL1-NL10-NL12"),
    ],
)
def test_a_node_that_is_not_ours_to_delete_stays_for_ever(
    site: Site, status: dict[str, bool], why: str
) -> None:
    site.fill(3).kill("n0").change("n0", **status)
    for _ in range(10):
        assert site.later().round(["n0"]) == []
    assert site.why("n0") == why


def test_a_worker_gets_permits_only_for_its_own_proposals(site: Site) -> None:
    site.fill(9).kill("n0").round(["n0"])
    assert site.later().round(worker="node-1.1") == []
    assert site.later().round(["n0"], worker="node-1.1") == []


def test_another_worker_that_has_not_looked_since_is_waited_for_but_not_for_ever(
    site: Site,
) -> None:
    site.fill(9).kill("n0").round(worker="node-1.1")
    site.later(1.0).round(["n0"])
    assert site.later().round(["n0"]) == []
    assert site.why("n0") == "workers-not-heard"
    for _ in range(10):
        assert site.later().round(["n0"]) == []
    assert site.later().round(["n0"]) == ["n0"]
