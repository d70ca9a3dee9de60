"""A crash between any two writes of the node plan still ends with the same Node."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.errors import KubernetesError
from ccm.model.cloud import AddressType, Instance, NodeAddress
from ccm.model.objects import Json, Node
from tests.support.cluster import patched
from tests.support.nodes import (
    OTHER_TAINT,
    Tweak,
    labelled,
    machine,
    node,
    provided_ip,
    recreated,
    tainted,
    with_addresses,
    with_provider_id,
    with_taint,
)
from workers.node.plan import CannotPlan, desired_addresses, patch_for, plan

HOSTS = ["Hostname a", "Hostname b", "InternalIP 10.0.0.1", "InternalIP 10.0.0.2", "ExternalIP ::1"]
ZONES = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]
KEYS = [*ZONES, "my/label", "my~label", "kubernetes.io/os"]
words = st.sampled_from(["", "one", "two"])

tweaks: st.SearchStrategy[list[Tweak]] = st.lists(
    st.one_of(
        st.just(tainted),
        st.just(with_taint(OTHER_TAINT)),
        st.dictionaries(st.sampled_from(KEYS), words, max_size=3).map(labelled),
        st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3).map(
            lambda some: with_addresses(*some)
        ),
        st.sampled_from(["10.0.0.1", "::1", "10.0.0.1,::1", "no-ip"]).map(provided_ip),
        st.sampled_from(["fake://1", "fake://2"]).map(with_provider_id),
    ),
    max_size=6,
)
machines = st.builds(
    Instance,
    provider_id=st.sampled_from(["", "fake://1"]),
    type=words,
    zone=words,
    region=words,
    addresses=st.lists(
        st.builds(
            NodeAddress,
            st.sampled_from(AddressType),
            st.sampled_from(["a", "10.0.0.1", "10.0.0.2", "::1"]),
        ),
        max_size=4,
    ).map(tuple),
    labels=st.dictionaries(st.sampled_from(KEYS), words, max_size=3),
)


def can_plan(case: tuple[Node, Instance]) -> bool:
    try:
        return bool(list(plan(*case)))
    except CannotPlan:
        return False


cases = st.tuples(tweaks.map(lambda some: node(*some, tainted)), machines).filter(can_plan)


def writes(before: Node, instance: Instance) -> Iterator[Json]:
    """The object after each write of the plan."""
    raw = before.raw
    for action in plan(before, instance):
        raw = patched(raw, patch_for(before, action).operations)
        yield raw


@given(cases, st.integers(0, 2))
def test_an_interrupted_plan_converges_to_the_same_node(
    case: tuple[Node, Instance], performed: int
) -> None:
    before, instance = case
    uninterrupted = list(writes(before, instance))
    interrupted = [before.raw, *uninterrupted][min(performed, len(uninterrupted))]
    resumed = [interrupted, *writes(Node(interrupted), instance)][-1]
    assert resumed == uninterrupted[-1]
    assert list(plan(Node(resumed), instance)) == []


@given(cases)
def test_a_node_is_never_schedulable_without_its_addresses(case: tuple[Node, Instance]) -> None:
    before, instance = case
    wanted = desired_addresses(before, instance.addresses)
    for raw in writes(before, instance):
        assert Node(raw).is_uninitialized or not wanted or Node(raw).addresses == wanted


@given(cases)
def test_initialization_takes_two_writes_at_the_most(case: tuple[Node, Instance]) -> None:
    assert 1 <= len(list(writes(*case))) <= 2


@given(tweaks, machines)
def test_a_plan_never_changes_what_it_looks_at(some: list[Tweak], instance: Instance) -> None:
    before, untouched = node(*some), node(*some)
    with suppress(CannotPlan):
        list(plan(before, instance))
    assert before == untouched


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param([tainted, recreated], id="the-node-was-recreated"),
        pytest.param([tainted, with_taint(OTHER_TAINT)], id="another-taint-was-added"),
        pytest.param([], id="the-taint-was-removed"),
        pytest.param([tainted, labelled({"a": "b"})], id="the-first-label-was-added"),
    ],
)
def test_a_write_planned_against_another_state_is_refused(meanwhile: list[Tweak]) -> None:
    before = node(tainted)
    *_, action = plan(before, machine("fake://1", type="t1"))
    with pytest.raises(KubernetesError) as refusal:
        patched(node(*meanwhile).raw, patch_for(before, action).operations)
    assert refusal.value.status == 422


def test_a_heartbeat_does_not_disturb_a_write() -> None:
    before, beating = node(tainted, labelled({"a": "b"})), node(tainted, labelled({"a": "c"}))
    beating.raw["metadata"]["resourceVersion"] = "2"
    beating.raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    *_, action = plan(before, machine("fake://1", zone="z"))
    after = Node(patched(beating.raw, patch_for(before, action).operations))
    assert (after.is_uninitialized, after.is_ready, after.labels["a"]) == (False, True, "c")
