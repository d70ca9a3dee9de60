"""What checks make of Nodes and Services, where planting each fault would take too long."""

import re
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.checks.finding import CheckState
from ccm.checks.nodes import (
    evaluate_initialization,
    evaluate_machines,
    evaluate_pod_cidrs,
    evaluate_provider_ids,
)
from ccm.checks.services import evaluate_services
from ccm.checks.serving_certificates import ServingRequest, evaluate_requests
from ccm.controllers import KNOWN, SERVICE, canonical, is_enabled
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.objects import UNINITIALIZED_TAINT, Node
from ccm.model.service import Service
from ccm.providers.simulated.instances import PROVIDER_IDS
from workers.service.plan import Capabilities


def node(name: str, *cidrs: str, provider_id: str = "") -> Node:
    spec = {"providerID": provider_id, "podCIDRs": list(cidrs)}
    return Node({"metadata": {"name": name}, "spec": spec})


def test_all_nodes_of_another_cloud_mean_the_wrong_cloud() -> None:
    nodes = [node(f"n{i}", provider_id=f"nimbus://{i}") for i in range(3)]
    found = evaluate_provider_ids(nodes, PROVIDER_IDS, "simulated")
    assert found.state is CheckState.FAILED
    assert "choose their cloud" in found.remedy


@pytest.mark.parametrize(
    ("address", "where", "state", "said"),
    [
        ("10.0.0.1", "n", "warning", "wait for approval: csr of n"),
        ("10.0.0.2", "n", "warning", "it is for 10.0.0.2, and the Node has 10.0.0.1 by now"),
        ("10.0.0.1", "lost", "warning", "there is no such Node"),
    ],
)
def test_requests_for_serving_certificates_are_approved_for_what_a_node_is_now(
    address: str, where: str, state: str, said: str
) -> None:
    here = node("n")
    here.raw["status"] = {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
    waiting = ServingRequest("csr", where, frozenset({address}))
    (found,) = evaluate_requests([waiting], {"n": here})
    assert (found.state, said in found.message) == (state, True)


@pytest.mark.parametrize(
    ("age", "leader", "state"),
    [
        (600.0, "one", "failed"),
        (100.0, "one", "ok"),
        (600.0, "", "ok"),  # nobody is at it yet
    ],
)
def test_a_node_waits_too_long_only_for_one_who_leads(age: float, leader: str, state: str) -> None:
    waits = node("n")
    waits.raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    waits.raw["spec"]["taints"] = [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}]
    found = evaluate_initialization([waits], leader, 1767225600.0 + age)
    assert found.state == state


@pytest.mark.parametrize(
    ("answer", "is_ready", "provider_id", "state", "word"),
    [
        (Instance("ours://1"), "True", "ours://1", "ok", "knows them"),
        (Gone("no such"), "True", "ours://1", "failed", "of Ready Nodes as gone: n"),
        (Gone("no such"), "Unknown", "ours://1", "ok", ""),  # it is about to be deleted
        (Gone("no such"), "Unknown", "", "failed", "no machine of these names: n"),
        (Unknown("denied"), "True", "ours://1", "warning", "no clear answer about n: denied"),
    ],
)
def test_a_machine_that_is_gone_is_wrong_while_its_node_is_ready(
    answer: Answer, is_ready: str, provider_id: str, state: str, word: str
) -> None:
    one = node("n", provider_id=provider_id)
    one.raw["status"] = {"conditions": [{"type": "Ready", "status": is_ready}]}
    [found] = evaluate_machines([one], {"n": answer})
    assert (found.state, word in found.message) == (state, True)


def test_of_several_machines_that_are_unclear_the_reason_is_one_nodes() -> None:
    answers = {"a": Unknown("it has no tags"), "b": Unknown("another one")}
    [found] = evaluate_machines([node("a"), node("b")], answers)
    assert found.message.endswith("about a, b; of a: it has no tags")


NETWORKS = st.tuples(st.integers(0, 255), st.integers(20, 28)).map(
    lambda pair: str(ip_network(f"10.0.{pair[0]}.0/{pair[1]}", strict=False))
)


def messages(cluster_cidr: str, cidrs: list[str]) -> list[str]:
    nodes = [node(f"n{number}", *cidr.split()) for number, cidr in enumerate(cidrs)]
    networks = [*map(ip_network, cluster_cidr.split(","))]
    return [each.message for each in evaluate_pod_cidrs(networks, nodes)]


@given(st.lists(NETWORKS, max_size=12))
def test_overlaps_are_reported_exactly_when_there_are_some(cidrs: list[str]) -> None:
    reported = [each for each in messages("10.0.0.0/16", cidrs) if "overlap" in each]
    networks = list(map(ip_network, cidrs))
    expected = [
        (one, other)
        for number, one in enumerate(networks)
        for other in networks[:number]
        if one.overlaps(other)
    ]
    assert bool(reported) == bool(expected)
    for pair in reported[0].partition(": ")[2].split(", ") if reported else ():
        if " and n" not in pair and "more" not in pair:
            one, other = (ip_network(part.split(" of ")[0]) for part in pair.split(" and "))
            assert one.overlaps(other)


@pytest.mark.parametrize(
    ("cluster_cidr", "cidrs", "word"),
    [
        (
            "10.0.0.0/8",
            ["10.0.0.0/16", "10.0.0.0/24", "10.0.2.0/24"],  # each inside another one is named
            "10.0.0.0/16 of n0 and 10.0.0.0/24 of n1, 10.0.0.0/16 of n0 and 10.0.2.0/24 of n2",
        ),
        ("10.0.0.0/8", [""], "no pod CIDR, so no route: n0"),
        (
            "10.0.0.0/8",
            ["10.0.0.0/24", "fd00::/64"],
            "no IPv6 network, nodes have: fd00::/64 of n1",
        ),
        ("10.0.0.0/8,fd00::/48", ["10.0.0.0/24"], "has fd00::/48, and no node an IPv6 pod CIDR"),
    ],
)
def test_pod_networks_that_get_no_route_are_named(
    cluster_cidr: str, cidrs: list[str], word: str
) -> None:
    [message] = messages(cluster_cidr, cidrs)
    assert word in message


def service(name: str, **spec: Any) -> Service:
    wanted = {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}], **spec}
    return Service({"metadata": {"name": name, "namespace": "default"}, "spec": wanted})


@pytest.mark.parametrize(
    ("one", "changes", "reported"),
    [
        (service("a"), {}, ["failed"]),
        (service("a"), {"leader": ""}, ["ok"]),  # nobody is at it yet
        (service("a"), {"now": 100.0}, ["ok"]),
        (service("a", loadBalancerClass="x"), {}, ["warning"]),
        (service("a", loadBalancerClass="x"), {"classes": ["x"]}, ["failed"]),
        (service("a", sessionAffinity="ClientIP"), {}, ["failed"]),  # and not "waits", too
        (service("a"), {"capabilities": None}, ["failed"]),
        (
            service("a", loadBalancerClass="x"),
            {"capabilities": None, "leader": ""},
            ["warning"],
        ),
    ],
)
def test_a_service_is_reported_once(one: Service, changes: Any, reported: list[str]) -> None:
    late = {"classes": [], "capabilities": Capabilities((), ()), "leader": "one", "now": 1e9}
    found = evaluate_services([one], **{**late, **changes})
    assert [finding.state for finding in found] == reported


def test_what_a_remedy_turns_off_is_all_that_it_turns_off() -> None:
    """`--controllers=-service` alone would leave no controller at work."""
    (finding,) = evaluate_services([service("a")], (), None, "us", 0.0)
    (controllers,) = re.findall(r"--controllers=(\S*[a-z])", finding.remedy)
    items = canonical(controllers.split(","))
    assert [name for name in KNOWN if not is_enabled(name, items)] == [SERVICE]
