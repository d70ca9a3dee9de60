"""What checks make of the API server's answers, where planting each would take too long."""

from dataclasses import replace
from typing import Any

import pytest

from ccm.checks.cluster import accounts, api_kinds, clock, lease, rights
from ccm.checks.finding import State
from ccm.checks.look.lease import LeaseSeen, lease_in
from ccm.checks.look.rights import Answer as Allowed
from ccm.checks.look.rights import Grain
from ccm.model.rbac import PolicyRule
from tests.check.row import states
from tests.kube.build import KUBERNETES

OURS = "host-1_6d9f4b7e-6f0e-4c0e-9d0a-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("ahead", "state"),
    [(0.4, "ok"), (-9.9, "ok"), (11.0, "warning"), (-200.0, "warning"), (300.0, "failed")],
)
def test_a_clock_is_judged_by_how_far_it_is_off(ahead: float, state: str) -> None:
    assert states(clock.judge(ahead)) == [state]


# Version and kinds.


def test_the_newest_known_version_is_the_one_that_tests_run_against() -> None:
    major, minor = KUBERNETES.version.removeprefix("v").split(".")[:2]
    assert (int(major), int(minor)) == api_kinds.NEWEST


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("v1.36.3", "ok"),
        ("v1.30.0-eks-1234", "ok"),
        ("v1.29.9", "warning"),
        ("v1.37.0", "warning"),
        ("v2.0.0", "warning"),
        ("", "warning"),
    ],
)
def test_a_version_is_known_or_not(version: str, state: str) -> None:
    assert states(api_kinds.judge(api_kinds.Facts(version, (), {}))) == [state]


def test_a_verb_that_is_not_served_is_named() -> None:
    right = PolicyRule("services/status", ("get", "patch"), "addresses")
    facts = api_kinds.Facts("v1.36.0", (right,), {("", "services/status"): frozenset({"get"})})
    *_, missing = api_kinds.judge(facts)
    assert missing.state is State.FAILED
    assert "patch of services/status" in missing.seen


# Rights.


def test_events_are_not_worth_a_failure_and_questions_not_allowed_are_no_answer() -> None:
    event, patch = (
        PolicyRule("events", ("create",), "told"),
        PolicyRule("nodes", ("patch",), "taints"),
    )
    answers = [Allowed(Grain(event, "create"), False), Allowed(Grain(patch, "patch"), None)]
    found = list(rights.judge([rights.Asked("the node worker", answers)]))
    assert states(found) == ["warning", "not checked"]


def test_the_verbs_of_a_right_are_one_complaint() -> None:
    right = PolicyRule("leases", ("get", "update"), "election", "coordination.k8s.io", "ns", ("l",))
    answers = [Allowed(Grain(right, verb, "l"), False) for verb in right.verbs]
    [found] = rights.judge([rights.Asked("the supervisor", answers)])
    wanted = "the supervisor may not get, update leases.coordination.k8s.io l in ns: election"
    assert found.seen == wanted


def test_an_account_that_cannot_be_seen_is_not_missing() -> None:
    found = list(accounts.judge({"a": None, "b": True}))
    assert states(found) == ["not checked"]


# The Lease.

FACTS = lease.Facts("ccm", "kube-system", True, None, None, False)
HELD = LeaseSeen("ccm", OURS, "ccm-supervisor", "t", 15.0, 3.0, is_alive=True)


@pytest.mark.parametrize(
    ("facts", "state", "word"),
    [
        (FACTS, "ok", "not there yet"),
        (replace(FACTS, namespace="own"), "not checked", "namespace own"),
        (replace(FACTS, has_namespace=False), "failed", "no namespace"),
        (replace(FACTS, lease=HELD), "ok", "another replica stands by"),
        (replace(FACTS, lease=replace(HELD, holder="", is_alive=False)), "ok", "is free"),
        (replace(FACTS, lease=replace(HELD, is_alive=False, age=60.0)), "ok", "ran out 1m ago"),
        (replace(FACTS, lease=replace(HELD, writer="nimbus")), "warning", "and a nimbus"),
        (replace(FACTS, lease=replace(HELD, writer="")), "warning", "stands by until it ends"),
        (replace(FACTS, lease=replace(HELD, writer=""), is_this_host=True), "ok", "stands by"),
        (replace(FACTS, lease=replace(HELD, holder="me", writer="x")), "warning", "for ever"),
        (replace(FACTS, is_elected=False), "ok", "run one replica only"),
        (replace(FACTS, is_elected=False, lease=HELD), "failed", "both would act"),
    ],
)
def test_a_lease_is_judged_by_its_holder(facts: lease.Facts, state: str, word: str) -> None:
    [found] = lease.judge(facts)
    assert found.state == state
    assert word in found.seen


def test_the_writer_of_a_lease_is_the_last_program_that_renewed_it() -> None:
    def wrote(manager: str, time: str, field: str) -> dict[str, Any]:
        return {"manager": manager, "time": time, "fieldsV1": {"f:spec": {field: {}}}}

    managed = [
        wrote("nimbus", "2026-01-01T00:00:00Z", "f:renewTime"),
        wrote("ccm-supervisor", "2026-01-02T00:00:00Z", "f:renewTime"),
        wrote("kubectl", "2026-01-03T00:00:00Z", "f:strategy"),
    ]
    assert lease_in({"metadata": {"managedFields": managed}}, 0.0).writer == "ccm-supervisor"
