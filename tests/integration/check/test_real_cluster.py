"""What `check` says of a healthy cluster, and of each fault that is planted in it."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ccm.checks.run import CHECKS
from tests.integration.check import (
    faults_of_cloud,
    faults_of_cluster,
    faults_of_host,
    faults_of_nodes,
)
from tests.integration.check.planting import Ground, PlantedFault
from tests.integration.check.world import CheckWorld
from tests.support.deadlines import timeout
from tests.support.kube.audit import AuditEntry

pytestmark = pytest.mark.real

ROWS = (*faults_of_cluster.ROWS, *faults_of_nodes.ROWS, *faults_of_cloud.ROWS, *faults_of_host.ROWS)


def test_a_healthy_cluster_has_no_warning(world: CheckWorld) -> None:
    report = world.check()
    assert report.of("warning", "failed") == set(), report.body
    assert report.exit_code == 0
    assert list(report.states) == [check.name for check in CHECKS]
    assert report.body["state"] == "not checked"
    # This identity may not see the Pods, Leases and certificates of others, and need not.
    assert report.of("not checked") == {"other-controllers", "serving-certificates"}


def test_an_account_that_may_read_everything_sees_everything(world: CheckWorld) -> None:
    report = world.check(identity="admin")
    assert report.of("ok") == {check.name for check in CHECKS}, report.body
    assert report.body["state"] == "ok"


def _asked_by_checks(world: CheckWorld) -> list[AuditEntry]:
    entries = world.cluster.audit()
    return [entry for entry in entries if entry.user_agent.startswith("ccm-supervisor/check")]


def test_nothing_is_written_but_access_reviews(world: CheckWorld) -> None:
    before = len(_asked_by_checks(world))
    world.check()
    asked = _asked_by_checks(world)[before:]
    assert [entry.uri for entry in asked if entry.is_write] == []
    reviews = {entry.resource for entry in asked if entry.verb == "create"}
    assert reviews == {"selfsubjectaccessreviews"}
    assert {"nodes", "services", "leases"} <= {entry.resource for entry in asked}


def test_whoever_may_only_read_gets_every_other_answer(world: CheckWorld) -> None:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    kubeconfig = world.cluster.service_account_kubeconfig("kube-system", "reader", rules)
    report = world.check(f"--kubeconfig={kubeconfig}")
    assert report.of("failed") == {"permissions"}
    assert report.of("ok") == {check.name for check in CHECKS} - {"permissions"}
    assert any("patch nodes" in finding["message"] for finding in report.findings("permissions"))


def test_an_upstream_account_reports_what_it_lacks_itself(world: CheckWorld) -> None:
    """It may not ask about others, but of itself anybody may."""
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
    ]
    kubeconfig = world.cluster.service_account_kubeconfig("kube-system", "upstream", rules)
    report = world.check(f"--kubeconfig={kubeconfig}", "--use-service-account-credentials")
    reported = [finding["message"] for finding in report.findings("service-accounts")]
    assert any("kube-system/upstream may not patch persistentvolumes" in each for each in reported)


def test_the_cloud_is_read_and_not_reported(world: CheckWorld) -> None:
    world.tell_cloud(lambda admin: admin.reset_counters())
    world.check()
    counters = world.tell_cloud(lambda admin: admin.counters())
    assert counters["writes"] == 0
    # Machines, routes, a balancer and a volume; the supervisor at work may add to them.
    assert 4 <= counters["reads"] <= 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_planted_fault_is_found_and_hides_nothing(
    row: PlantedFault, world: CheckWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with row.plant(Ground(world, tmp_path, monkeypatch)) as flags:
        report = world.check(*flags, identity=row.identity)
    assert list(report.states) == [check.name for check in CHECKS]
    check, _, message = row.found.partition(": ")
    found = [each for each in report.findings(check) if message in each["message"]]
    assert found, report.findings(check)
    for finding in found:
        assert (finding["state"], row.remedy in finding["remedy"]) == (row.state, True), finding
    assert report.of("failed", "warning") == {check} | row.also, report.body
    assert report.exit_code == (1 if report.of("failed") else 0)


def test_too_few_open_files_and_the_exit_code_of_a_real_process(world: CheckWorld) -> None:
    command = [sys.executable, "-m", "ccm.cli.main", "check", *world.flags()]
    done = subprocess.run(
        ["sh", "-c", f"ulimit -n 100; exec {shlex.join(command)}"],
        capture_output=True,
        text=True,
        timeout=timeout(),
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "100 files may be open" in done.stdout
    assert "ulimit -n 1024, or LimitNOFILE=" in " ".join(done.stdout.split())
    assert f"{len(CHECKS)} checks:" in done.stdout
