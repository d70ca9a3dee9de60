"""Which Services are work, and which Nodes may be hosts (rows SV12, SN16…SN18)."""

import pytest

from ccm.model.node import Node
from workers.service.hosts import Hosts, host_of, hosts_of
from workers.service.predicates import (
    EXCLUDE_LABEL,
    LEAVING_TAINT,
    may_be_host,
    needs_cleanup,
    wants_balancer,
)

from .objects import (
    DELETED_AT,
    Tweak,
    being_deleted,
    finalized,
    labelled,
    node,
    ready,
    service,
    spec,
    typed,
    with_address,
    with_provider_id,
    with_taint,
)


@pytest.mark.parametrize(
    ("tweaks", "expected"),
    [
        pytest.param([], False, id="SV12-no-finalizer"),
        pytest.param([finalized], False, id="SV12-finalizer"),
        pytest.param([finalized, typed("NodePort")], True, id="SV12-finalizer-and-NodePort"),
        pytest.param([finalized, being_deleted], True, id="SV12-finalizer-and-deletion"),
        pytest.param([being_deleted], False, id="SV12-deletion-only"),
    ],
)
def test_what_needs_cleanup(tweaks: list[Tweak], expected: bool) -> None:
    assert needs_cleanup(service(*tweaks)) is expected


@pytest.mark.parametrize(
    ("tweaks", "classes", "expected"),
    [
        ([], (), True),
        ([], ("mine",), True),
        ([spec(loadBalancerClass="mine")], ("mine", "also"), True),
        ([spec(loadBalancerClass="mine")], (), False),
        ([spec(loadBalancerClass="theirs")], ("mine",), False),
        ([spec(loadBalancerClass="")], (), False),
        ([typed("NodePort")], (), False),
        ([typed("NodePort"), spec(loadBalancerClass="mine")], ("mine",), False),
    ],
)
def test_who_wants_a_balancer_of_ours(
    tweaks: list[Tweak], classes: tuple[str, ...], expected: bool
) -> None:
    assert wants_balancer(service(*tweaks), classes) is expected


def bare(raw: dict[str, object]) -> None:
    raw.update(spec={}, status={})


def leaving(raw: dict[str, dict[str, object]]) -> None:
    raw["metadata"]["deletionTimestamp"] = DELETED_AT


@pytest.mark.parametrize(
    ("tweaks", "expected"),
    [
        # Readiness is no predicate: upstream defines one that only its tests use.
        pytest.param([bare], True, id="SN16-empty"),
        pytest.param([ready("True")], True, id="SN16-ready"),
        pytest.param([ready("True"), with_provider_id("")], True, id="SN16-no-provider-id"),
        pytest.param([ready("False")], True, id="SN16-not-ready"),
        pytest.param([labelled(EXCLUDE_LABEL, "")], False, id="SN17-empty"),
        pytest.param([labelled(EXCLUDE_LABEL, "false")], True, id="SN17-false"),
        pytest.param([labelled(EXCLUDE_LABEL, "0")], True, id="zero"),
        pytest.param([labelled(EXCLUDE_LABEL, "no")], False, id="not-a-boolean"),
        pytest.param([labelled(EXCLUDE_LABEL, "true")], False, id="true"),
        pytest.param([with_taint(LEAVING_TAINT)], False, id="SN18-autoscaler"),
        pytest.param([with_taint("other")], True, id="other-taint"),
        pytest.param([leaving], False, id="being-deleted"),
        pytest.param([with_provider_id("other://1")], False, id="of-another-cloud"),
    ],
)
def test_who_may_be_a_host(tweaks: list[Tweak], expected: bool) -> None:
    assert may_be_host(node("n1", *tweaks), "fake") is expected


def hosts(*nodes: Node) -> Hosts:
    return hosts_of(host for node in nodes if (host := host_of(node, "fake")))


@pytest.mark.parametrize("nodes", [pytest.param([node("n1", leaving)] * 3, id="SN18-list"), []])
def test_when_nobody_may_be_a_host_the_set_is_empty(nodes: list[Node]) -> None:
    assert hosts(*nodes).names == []


def test_hosts_are_equal_when_a_cloud_reaches_them_alike() -> None:
    before = hosts(node("b"), node("a"))
    same = hosts(node("a", ready("False"), labelled("x", "y")), node("b"))
    assert before == same
    assert before.names == ["a", "b"]
    for tweak in (with_provider_id("fake://other"), with_provider_id(""), with_address("10.9.9.9")):
        assert hosts(node("a", tweak), node("b")) != before
