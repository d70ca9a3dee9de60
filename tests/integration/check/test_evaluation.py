"""What checks make of what probes found, where planting each fault would take too long."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ccm.checks import api_server, cloud, flags, host, permissions
from ccm.checks.cloud_budget import BudgetEvidence, evaluate_budget
from ccm.checks.finding import Finding, abbreviate
from ccm.checks.leaders import ObservedLease, evaluate_lease, of_leases, parse_lease
from ccm.cloud.interface import Quota
from ccm.controllers import ROUTE
from ccm.errors import CloudError, Denied, NotImplementedByProvider, Refused, Throttled
from ccm.kube.access_review import AccessReview
from ccm.kube.cluster_identity import POLICY_RULE as CLUSTER_UID
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from ccm.settings import flags as declared_flags
from tests.support.kube.build import KUBERNETES


def states(findings: Iterable[Finding]) -> list[str]:
    return [str(finding.state) for finding in findings]


def test_names_of_many_are_the_first_and_a_number() -> None:
    assert abbreviate(["a", "b", "c"]) == "a, b, c"
    assert abbreviate(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


# The host.


@pytest.mark.parametrize(
    ("limit", "port", "state"),
    [(1024, 10258, "ok"), (200, 10258, "failed"), (200, 0, "ok"), (-1, 10258, "ok")],
)
def test_open_files_are_counted(limit: int, port: int, state: str) -> None:
    assert host.evaluate_open_files(limit, Settings(secure_port=port)).state == state


FITTING = Settings(cluster_cidr=("10.0.0.0/8",))
TAGGING = replace(
    FITTING,
    cloud_provider="aws",
    controllers=("*", "tagging"),
    tags={"a": "1"},
    resources=("instance",),
)
WITHOUT_ROUTES = replace(FITTING, controllers=("*", "-node-route-controller"))


@pytest.mark.parametrize(
    ("settings", "written", "word"),
    [
        (FITTING, ("allocate_node_cidrs",), ""),  # written, and as it is anyway
        (replace(FITTING, allow_untagged_cloud=True), ("allow_untagged_cloud",), "is deprecated"),
        (WITHOUT_ROUTES, (), ""),
        (replace(FITTING, controllers=("-service-lb-controller",)), (), "turns no controller on"),
        (Settings(configure_cloud_routes=False), (), ""),
        (replace(FITTING, leader_elect=False, leader_elect_lease_duration=10.5), (), ""),
        (replace(FITTING, concurrent_node_syncs=64), (), "--kube-api-in-flight=48 lets through"),
        (replace(FITTING, concurrent_node_syncs=64, kube_api_in_flight=64), (), ""),
        (replace(FITTING, kube_api_burst=30, kube_api_qps=20.0), (), ""),
        (replace(FITTING, kube_api_burst=30), (), "no effect without --kube-api-qps"),
        (replace(FITTING, leader_elect_lease_duration=11.0), (), "only 1s after the renew"),
        (replace(FITTING, allocate_node_cidrs=True), ("allocate_node_cidrs",), "has no effect"),
        (Settings(), (), "routes are left alone: without --cluster-cidr"),
        (replace(FITTING, tags={"a": "1"}), ("tags",), "--controllers turns tagging off"),
        (TAGGING, ("tags",), ""),
        (replace(TAGGING, tags={"aws:a": "1"}), ("tags",), "is reserved by AWS"),
    ],
)
def test_flags_are_reported_only_when_they_have_another_effect(
    settings: Settings, written: tuple[str, ...], word: str
) -> None:
    found = [each.message for each in flags.evaluate_flags(settings, written) if each.remedy]
    assert len(found) == bool(word)
    assert all(word in message for message in found)


def test_every_flag_that_needs_a_controller_is_a_flag() -> None:
    assert flags.CONTROLLER_OF_FLAG.keys() <= {flag.field for flag in declared_flags()}


# The API server.


@pytest.mark.parametrize(
    ("offset", "state"),
    [(0.4, "ok"), (-9.9, "ok"), (11.0, "warning"), (-200.0, "warning"), (300.0, "failed")],
)
def test_a_clock_is_evaluated_by_how_far_it_is_off(offset: float, state: str) -> None:
    assert api_server.evaluate_clock(offset).state == state


def test_the_newest_supported_version_is_the_one_that_tests_run_against() -> None:
    major, minor = KUBERNETES.version.removeprefix("v").split(".")[:2]
    assert (int(major), int(minor)) == api_server.NEWEST


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("v1.37.2", "ok"),
        ("v1.30.0-eks-1234", "ok"),
        ("v1.29.9", "warning"),
        ("v1.38.0", "warning"),
        ("v2.0.0", "warning"),
        ("", "warning"),
    ],
)
def test_a_version_is_supported_or_not(version: str, state: str) -> None:
    assert api_server.evaluate_version(version).state == state


def test_events_are_not_worth_a_failure_and_questions_not_allowed_are_no_answer() -> None:
    event, patch = (
        PolicyRule("events", ("create",), "told"),
        PolicyRule("nodes", ("patch",), "taints"),
    )
    reviews = [AccessReview(event, "create", "", False), AccessReview(patch, "patch")]
    found = permissions.evaluate_reviews("the node worker", reviews)
    assert states(found) == ["warning", "not checked"]


def test_what_a_start_can_do_without_is_a_warning() -> None:
    [found] = permissions.evaluate_reviews(
        "the supervisor", [AccessReview(CLUSTER_UID, "get", "kube-system", False)]
    )
    assert found.state == "warning"


def test_the_verbs_of_a_rule_are_one_finding() -> None:
    rule = PolicyRule("leases", ("get", "update"), "election", "coordination.k8s.io", "ns", ("l",))
    reviews = [AccessReview(rule, verb, "l", False) for verb in rule.verbs]
    [found] = permissions.evaluate_reviews("the supervisor", reviews)
    wanted = "the supervisor may not get, update leases.coordination.k8s.io l in ns: election"
    assert found.message == wanted


# The Lease.

OURS = "host-1_6d9f4b7e-6f0e-4c0e-9d0a-0a1b2c3d4e5f"
NOT_ELECTED = {"settings": Settings(leader_elect=False)}
ELSEWHERE = {"settings": Settings(leader_elect_resource_namespace="own")}
HELD = ObservedLease("ccm", OURS, "ccm-supervisor", "t", 15.0, 3.0, is_alive=True)


@pytest.mark.parametrize(
    ("changes", "state", "word"),
    [
        ({}, "ok", "not there yet"),
        (ELSEWHERE, "not checked", "namespace own"),
        ({"lease": HELD}, "ok", "another replica stands by"),
        ({"lease": replace(HELD, holder="", is_alive=False)}, "ok", "is free"),
        ({"lease": replace(HELD, is_alive=False, age=60.0)}, "ok", "expired 1m ago"),
        ({"lease": replace(HELD, field_manager="nimbus")}, "warning", "and a nimbus"),
        ({"lease": replace(HELD, field_manager="")}, "warning", "stands by until it ends"),
        ({"lease": replace(HELD, field_manager=""), "leads_here": True}, "ok", "stands by"),
        ({"lease": replace(HELD, holder="me", field_manager="x")}, "warning", "for ever"),
        ({"lease": replace(HELD, holder="kube-vip-1", field_manager="")}, "warning", "for ever"),
        (NOT_ELECTED, "ok", "run one replica only"),
        ({**NOT_ELECTED, "lease": HELD}, "failed", "both would act"),
    ],
)
def test_a_lease_is_evaluated_by_its_holder(changes: Any, state: str, word: str) -> None:
    free = {"settings": Settings(), "lease": None, "has_namespace": None, "leads_here": False}
    found = evaluate_lease(**{**free, **changes})
    assert found.state == state
    assert word in found.message


def test_the_field_manager_of_a_lease_is_the_last_program_that_renewed_it() -> None:
    def wrote(manager: str, time: str, field: str) -> dict[str, Any]:
        return {"manager": manager, "time": time, "fieldsV1": {"f:spec": {field: {}}}}

    managed = [
        wrote("nimbus", "2026-01-01T00:00:00Z", "f:renewTime"),
        wrote("ccm-supervisor", "2026-01-02T00:00:00Z", "f:renewTime"),
        wrote("kubectl", "2026-01-03T00:00:00Z", "f:strategy"),
    ]
    lease = parse_lease({"metadata": {"managedFields": managed}}, 0.0)
    assert lease.field_manager == "ccm-supervisor"


def lease(name: str, holder: str, manager: str = "") -> dict[str, Any]:
    """One that `manager` renewed 3 s before the second 10."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "renewTime": "1970-01-01T00:00:07Z",
    }
    renewal = {"time": "1970-01-01T00:00:07Z", "fieldsV1": {"f:spec": {"f:renewTime": {}}}}
    managed = [{"manager": manager, **renewal}] if manager else []
    return {"metadata": {"name": name, "managedFields": managed}, "spec": spec}


OTHER = OURS.replace("host-1", "other-1")
POD = {
    "metadata": {"name": "other-1"},
    "spec": {
        "containers": [
            {
                "command": ["/bin/nimbus-cloud-controller-manager"],
                "args": ["--cloud-provider=nimbus"],
            }
        ]
    },
}


@pytest.mark.parametrize(
    ("leases", "pods", "found"),
    [
        ([lease("ccm-b", OTHER, "ccm-supervisor")], [], [f"Lease ccm-b is held by {OTHER}, which"]),
        ([lease("b", OTHER, "nimbus-cloud-controller-manager")], [], ["Lease b is held by"]),
        ([lease("my-cloud-controller-manager", OTHER)], [], ["Lease my-cloud-controller-manager"]),
        ([lease("b", OTHER)], [POD], [f"Lease b is held by {OTHER}, for nimbus, which is alive"]),
        ([lease("b", OTHER)], [], []),
        ([lease("kube-scheduler", OTHER, "kube-scheduler")], [], []),
        ([lease("migration", OURS, "ccm-supervisor")], [], []),
    ],
    ids=["ours", "by its program", "by its name", "by its Pod", "unknown", "scheduler", "second"],
)
def test_a_lease_of_any_name_that_another_controller_manager_holds_is_found(
    leases: list[Any], pods: list[Any], found: list[str]
) -> None:
    """MC65: two supervisors with Leases of their own found nothing of each other."""
    own = lease("cloud-controller-manager", OURS, "ccm-supervisor")
    messages = [one.message for one in of_leases([own, *leases], pods, Settings(), 10.0)]
    assert len(messages) == len(found)
    assert all(part in message for part, message in zip(found, messages, strict=True))


# The cloud.


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (None, "ok", "the cloud answers about routes, volumes"),
        (Denied("403"), "failed", "the cloud does not let us read routes, a volume: 403"),
        (Throttled("429"), "warning", "the cloud throttled us when we read routes, a volume: 429"),
        (Refused("no"), "failed", "the cloud refused to read routes, a volume: no"),
        (CloudError("reset"), "failed", "no answer about routes, a volume: reset"),
        (NotImplementedByProvider("never"), "ok", "the cloud answers about routes, volumes"),
    ],
)
def test_an_error_of_the_cloud_is_reported_once(
    error: CloudError | None, state: str, message: str
) -> None:
    parts = ("routes", "routes"), ("volumes", "a volume")
    reads = [cloud.CloudRead(*part, error=error) for part in parts]
    [found] = cloud.evaluate_reads(reads)
    assert (found.state, found.message) == (state, message)


def test_rights_that_are_missing_are_a_warning_beside_what_failed() -> None:
    reads = [
        cloud.CloudRead("routes", "routes", error=CloudError("reset")),
        cloud.CloudRead(
            "load balancers", "rights", missing_permissions=("elb:Tags", "ec2:Subnets")
        ),
    ]
    failure, warned = cloud.evaluate_reads(reads)
    assert (failure.state, warned.state) == ("failed", "warning")
    assert warned.message == "the cloud does not let us do all: elb:Tags, ec2:Subnets"


LARGE = BudgetEvidence(
    settings=Settings(node_workers=1),
    quotas={"read": Quota(20.0, 40)},
    batch_size=100,
    nodes=5000,
    unready=0,
    cost={"instances": Counter({"read": 1}), "routes": Counter({"read": 50})},
)


@pytest.mark.parametrize(
    ("changes", "state", "word"),
    [
        # 50 batches every 5 minutes, and 50 pages of routes every 10 minutes.
        ({}, "ok", "read: about 900 calls an hour of 72000 (1%)"),
        ({"quotas": {"read": Quota(0.4, 1)}}, "warning", "900 calls an hour of 1440 (62%)"),
        ({"quotas": {"read": Quota(0.2, 1)}}, "failed", "(125%): more than the quota allows"),
        ({"settings": Settings(cloud_rate={"read": 0.2})}, "failed", "of 720 (125%)"),
        ({"settings": Settings(cloud_reserve=0.9)}, "ok", "of 7200 (13%)"),
        ({"settings": Settings(node_workers=60)}, "ok", "about 1020 calls"),
        ({"unready": 5000}, "warning", "about 36900 calls"),  # a read a pass whatever its size
        ({"settings": Settings(controllers=(ROUTE,))}, "ok", "about 300 calls"),
        ({"cost": {}}, "ok", "no periodic calls"),
        (
            {"quotas": {"read": Quota(1.0, 1)}, "batch_size": 1},
            "warning",
            "to ask about all 5000 nodes once takes 1h23m20s: as long may a new node wait",
        ),
    ],
)
def test_the_budget_is_evaluated_by_its_share(changes: Any, state: str, word: str) -> None:
    found = list(evaluate_budget(replace(LARGE, **changes)))
    assert state in states(found)
    assert any(word in each.message for each in found), found
