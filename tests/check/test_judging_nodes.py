"""What checks make of Nodes and Services, where planting each would take too long."""

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.checks.finding import State, some
from ccm.checks.nodes import machines, pod_networks, provider_ids, services, waiting
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.node import UNINITIALIZED_TAINT, Node
from ccm.model.service import Service
from tests.check.row import states


def node(name: str, *cidrs: str, provider_id: str = "", **meta: Any) -> Node:
    spec = {"providerID": provider_id, "podCIDRs": list(cidrs)}
    return Node({"metadata": {"name": name, **meta}, "spec": spec})


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
        (service("a"), {"supported_features": None}, ["failed"]),
        (
            service("a", loadBalancerClass="x"),
            {"supported_features": None, "leader": ""},
            ["warning"],
        ),
    ],
)
def test_a_service_is_told_of_once(one: Service, changes: Any, told: list[str]) -> None:
    facts = services.Facts([one], [], frozenset(), "one", 1e9, 300.0)
    assert states(services.judge(replace(facts, **changes))) == told


def test_names_of_many_are_the_first_and_a_number() -> None:
    assert some(["a", "b", "c"]) == "a, b, c"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
