"""What each check makes of its facts, where planting every case would take too long."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.checks.cloud import budget, reads
from ccm.checks.cluster import accounts, api_kinds, clock, lease, rights
from ccm.checks.finding import Finding, State, some
from ccm.checks.host import open_files
from ccm.checks.look.cloud import Read
from ccm.checks.look.lease import LeaseSeen, lease_in
from ccm.checks.look.rights import Answer as Allowed
from ccm.checks.look.rights import Grain
from ccm.checks.nodes import machines, pod_networks, provider_ids, services, waiting
from ccm.cloud.interface import Quota
from ccm.errors import CloudError, Denied, NotImplementedByProvider, Refused, Throttled
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.node import UNINITIALIZED_TAINT, Node
from ccm.model.rights import Right
from ccm.model.service import Service
from ccm.settings import Settings
from tests.kube.build import KUBERNETES

OURS = "host-1_6d9f4b7e-6f0e-4c0e-9d0a-0a1b2c3d4e5f"


def states(findings: Iterable[Finding]) -> list[str]:
    return [str(finding.state) for finding in findings]


def node(name: str, *cidrs: str, provider_id: str = "", **meta: Any) -> Node:
    spec = {"providerID": provider_id, "podCIDRs": list(cidrs)}
    return Node({"metadata": {"name": name, **meta}, "spec": spec})


# Clock.


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
    right = Right("services/status", ("get", "patch"), "addresses")
    facts = api_kinds.Facts("v1.36.0", (right,), {("", "services/status"): frozenset({"get"})})
    *_, missing = api_kinds.judge(facts)
    assert missing.state is State.FAILED
    assert "patch of services/status" in missing.seen


# Rights.


def test_events_are_not_worth_a_failure_and_questions_not_allowed_are_no_answer() -> None:
    event, patch = Right("events", ("create",), "told"), Right("nodes", ("patch",), "taints")
    answers = [Allowed(Grain(event, "create"), False), Allowed(Grain(patch, "patch"), None)]
    found = list(rights.judge([rights.Asked("the node worker", answers)]))
    assert states(found) == ["warning", "not checked"]


def test_the_verbs_of_a_right_are_one_complaint() -> None:
    right = Right("leases", ("get", "update"), "election", "coordination.k8s.io", "ns", ("l",))
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


# Nodes.


def test_all_nodes_of_another_cloud_mean_the_wrong_cloud() -> None:
    nodes = [node(f"n{i}", provider_id=f"nimbus://{i}") for i in range(3)]
    [found] = provider_ids.judge(provider_ids.Facts("simulated", "simulated", nodes))
    assert found.state is State.FAILED
    assert "choose their cloud" in found.remedy


@pytest.mark.parametrize(
    ("age", "leader", "provider_id", "state"),
    [
        (600.0, "one", "", "failed"),
        (100.0, "one", "", "ok"),
        (600.0, "", "", "ok"),  # nobody is at it yet
        (600.0, "one", "nimbus://1", "ok"),  # somebody else's business
    ],
)
def test_a_node_waits_too_long_only_for_one_who_leads(
    age: float, leader: str, provider_id: str, state: str
) -> None:
    born = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    waits = node("n", provider_id=provider_id, **born)
    waits.raw["spec"]["taints"] = [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}]
    facts = waiting.Facts("simulated", [waits], leader, 1767225600.0 + age, 300.0)
    assert states(waiting.judge(facts)) == [state]


@pytest.mark.parametrize(
    ("answer", "is_ready", "provider_id", "state"),
    [
        (Instance("ours://1"), "True", "ours://1", "ok"),
        (Gone("no such"), "True", "ours://1", "failed"),
        (Gone("no such"), "Unknown", "ours://1", "ok"),  # it is about to be deleted
        (Gone("no such"), "Unknown", "", "failed"),
        (Unknown("denied"), "True", "ours://1", "warning"),
    ],
)
def test_a_machine_that_is_gone_is_wrong_while_its_node_is_ready(
    answer: Answer, is_ready: str, provider_id: str, state: str
) -> None:
    one = node("n", provider_id=provider_id)
    one.raw["status"] = {"conditions": [{"type": "Ready", "status": is_ready}]}
    assert states(machines.judge(machines.Facts([one], {"n": answer}))) == [state]


NETWORKS = st.tuples(st.integers(0, 255), st.integers(20, 28)).map(
    lambda pair: str(ip_network(f"10.0.{pair[0]}.0/{pair[1]}", strict=False))
)


@given(st.lists(NETWORKS, max_size=12))
def test_overlaps_are_told_exactly_when_there_are_some(cidrs: list[str]) -> None:
    nodes = [node(f"n{number}", cidr) for number, cidr in enumerate(cidrs)]
    facts = pod_networks.Facts([ip_network("10.0.0.0/16")], nodes)
    told = [found.seen for found in pod_networks.judge(facts) if "overlap" in found.seen]
    networks = list(map(ip_network, cidrs))
    overlap = [
        (one, other)
        for number, one in enumerate(networks)
        for other in networks[:number]
        if one.overlaps(other)
    ]
    assert bool(told) == bool(overlap)
    for pair in told[0].partition(": ")[2].split(", ") if told else ():
        if " and n" not in pair and "more" not in pair:
            one, other = (ip_network(part.split(" of ")[0]) for part in pair.split(" and "))
            assert one.overlaps(other)


def test_every_network_inside_another_one_is_named() -> None:
    nodes = [node("a", "10.0.0.0/16"), node("b", "10.0.1.0/24"), node("c", "10.0.2.0/24")]
    [found] = pod_networks.judge(pod_networks.Facts([ip_network("10.0.0.0/8")], nodes))
    assert "10.0.0.0/16 of a and 10.0.1.0/24 of b, 10.0.0.0/16 of a and 10.0.2.0/24 of c" in (
        found.seen
    )


# Services.


def service(name: str, **spec: Any) -> Service:
    wanted = {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}], **spec}
    return Service({"metadata": {"name": name, "namespace": "default"}, "spec": wanted})


@pytest.mark.parametrize(
    ("one", "changes", "told"),
    [
        (service("a"), {}, ["failed"]),
        (service("a"), {"leader": ""}, ["ok"]),  # nobody is at it yet
        (service("a"), {"long": 1e12}, ["ok"]),
        (service("a", loadBalancerClass="x"), {}, ["warning"]),
        (service("a", loadBalancerClass="x"), {"classes": ["x"]}, ["failed"]),
        (service("a", sessionAffinity="ClientIP"), {}, ["failed"]),  # and not "waits", too
        (service("a"), {"honours": None}, ["failed"]),
        (service("a", loadBalancerClass="x"), {"honours": None, "leader": ""}, ["warning"]),
    ],
)
def test_a_service_is_told_of_once(one: Service, changes: Any, told: list[str]) -> None:
    facts = services.Facts([one], [], frozenset(), "one", 1e9, 300.0)
    assert states(services.judge(replace(facts, **changes))) == told


# What the cloud answered.


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, "ok"),
        (Denied("403"), "failed"),
        (Throttled("429"), "warning"),
        (Refused("no"), "failed"),
        (CloudError("reset"), "failed"),
        (NotImplementedByProvider("never"), "ok"),
    ],
)
def test_an_error_of_the_cloud_is_told_of_once(error: CloudError | None, state: str) -> None:
    asked = [Read("routes", "routes", error=error), Read("volumes", "a volume", error=error)]
    assert states(reads.judge(asked)) == [state]


def test_names_of_many_are_the_first_and_a_number() -> None:
    assert some(["a", "b", "c"]) == "a, b, c"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


# The budget.

LARGE = budget.Facts(
    settings=Settings(node_workers=1),
    quotas={"read": Quota(20.0, 40)},
    batch_size=100,
    nodes=5000,
    unready=0,
    does_nodes=True,
    does_lifecycle=True,
    cost={"instances": Counter({"read": 1}), "routes": Counter({"read": 50})},
)


def test_calls_an_hour_are_those_that_come_whatever_happens() -> None:
    # 50 batches every 5 minutes, and 50 pages of routes every 10 minutes.
    [found] = budget.judge(LARGE)
    assert found.seen == "read: about 900 calls an hour of 72000 (1%)"


@pytest.mark.parametrize(
    ("changes", "state", "word"),
    [
        ({"quotas": {"read": Quota(0.4, 1)}}, "warning", "900 calls an hour of 1440 (62%)"),
        ({"quotas": {"read": Quota(0.2, 1)}}, "failed", "(125%): it will never keep up"),
        ({"settings": Settings(cloud_rate={"read": 0.2})}, "failed", "of 720 (125%)"),
        ({"settings": Settings(cloud_reserve=0.9)}, "ok", "of 7200 (13%)"),
        ({"settings": Settings(node_workers=60)}, "ok", "about 1020 calls"),
        ({"unready": 5000}, "warning", "about 36900 calls"),  # a read a round whatever its size
        ({"does_nodes": False, "does_lifecycle": False}, "ok", "about 300 calls"),
        ({"cost": {}}, "ok", "no calls but for changes"),
    ],
)
def test_the_budget_is_judged_by_its_share(changes: Any, state: str, word: str) -> None:
    found = list(budget.judge(replace(LARGE, **changes)))
    assert state in states(found)
    assert any(word in each.seen for each in found), found


def test_a_start_that_takes_long_is_told() -> None:
    slow = replace(LARGE, quotas={"read": Quota(1.0, 1)}, batch_size=1, unready=0)
    found = [each for each in budget.judge(slow) if "nodes once takes" in each.seen]
    assert [each.seen.partition(": to ask")[2] for each in found] == [
        " about all 5000 nodes once takes 1h23m20s: as long may a new node wait"
    ]


# This machine.


@pytest.mark.parametrize(
    ("limit", "serves", "state"),
    [(1024, True, "ok"), (200, True, "failed"), (200, False, "ok"), (-1, True, "ok")],
)
def test_open_files_are_counted(limit: int, serves: bool, state: str) -> None:
    assert states(open_files.judge(open_files.Facts(limit, 32, 4, serves))) == [state]
