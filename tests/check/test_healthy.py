"""A cluster in which all is well: nothing to complain about, and nothing written to find out."""

import pytest

from ccm.checks.all import CHECKS
from tests.check.world import World
from tests.kube.audit import AuditEntry

pytestmark = pytest.mark.real

REVIEWS = "selfsubjectaccessreviews"


def test_a_healthy_cluster_has_no_warning(world: World) -> None:
    report = world.check()
    assert report.of("warning", "failed") == set(), report.body
    assert report.exit_code == 0
    assert list(report.states) == [check.name for check in CHECKS]
    assert report.body["state"] == "not checked"
    # This identity may not see the Pods and Leases of others, and need not.
    assert report.of("not checked") == {"other-controllers"}


def test_whoever_may_see_everything_is_told_everything(world: World) -> None:
    report = world.check(identity="admin")
    assert report.of("ok") == {check.name for check in CHECKS}, report.body
    assert report.body["state"] == "ok"


def _asked_by_checks(world: World) -> list[AuditEntry]:
    entries = world.cluster.audit()
    return [entry for entry in entries if entry.user_agent.startswith("ccm-supervisor/check")]


def test_nothing_is_written_but_questions_about_rights(world: World) -> None:
    before = len(_asked_by_checks(world))
    world.check()
    asked = _asked_by_checks(world)[before:]
    assert {entry.resource for entry in asked if entry.is_write} == {REVIEWS}
    assert {"nodes", "services", "leases"} <= {e.resource for e in asked if not e.is_write}


def test_whoever_may_only_read_gets_every_other_answer(world: World) -> None:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    kubeconfig = world.cluster.service_account_kubeconfig("kube-system", "reader", rules)
    report = world.check(f"--kubeconfig={kubeconfig}")
    assert report.of("failed") == {"rights"}
    assert report.of("ok") == {check.name for check in CHECKS} - {"rights"}
    assert any("patch nodes" in finding["seen"] for finding in report.findings("rights"))


def test_the_cloud_is_asked_and_not_told(world: World) -> None:
    world.tell_cloud(lambda admin: admin.reset_counters())
    world.check()
    counters = world.tell_cloud(lambda admin: admin.counters())
    assert counters["writes"] == 0
    # Machines, routes, a balancer and a volume; the supervisor at work may add to them.
    assert 4 <= counters["reads"] <= 20
