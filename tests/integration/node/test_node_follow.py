"""An initialized Node follows its machine: what is planned for its labels and addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.model.cloud import Instance
from ccm.model.objects import Json, Node
from tests.support.cluster import patched
from tests.support.nodes import (
    Tweak,
    labelled,
    machine,
    node,
    provided_ip,
    with_addresses,
    with_provider_id,
)
from workers.node.plan import CannotPlan, SetLabels, patch_for, plan_update

from .test_node_interrupted import machines, tweaks

BETA = {
    "failure-domain.beta.kubernetes.io/zone": "z",
    "failure-domain.beta.kubernetes.io/region": "r",
    "beta.kubernetes.io/instance-type": "t",
}
GA = {
    "topology.kubernetes.io/zone": "z",
    "topology.kubernetes.io/region": "r",
    "node.kubernetes.io/instance-type": "t",
}
OTHER = dict.fromkeys(GA, "other")
MINE = {"mine": "x"}


def after(before: Node, instance: Instance | None, beta_wins: bool = False) -> Node:
    raw: Json = before.raw
    for action in plan_update(before, instance, beta_wins):
        raw = patched(raw, patch_for(before, action).operations)
    return Node(raw)


@pytest.mark.parametrize("beta_wins", [False, True])
@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param(BETA, BETA | GA, id="CP1"),
        pytest.param(GA, GA, id="a-missing-beta-key-stays-away"),
        pytest.param(BETA | GA | MINE, BETA | GA | MINE, id="they-agree"),
        pytest.param({}, {}, id="no-labels"),
    ],
)
def test_keys_of_a_pair_are_made_to_agree(
    there: dict[str, str], expected: dict[str, str], beta_wins: bool
) -> None:
    assert after(node(labelled(there)), None, beta_wins).labels == expected


@pytest.mark.parametrize(
    ("beta_wins", "expected"),
    [(False, dict.fromkeys(BETA | GA, "other")), pytest.param(True, BETA | GA, id="CP2")],
)
def test_where_a_pair_differs_the_ga_key_is_right_unless_configured_otherwise(
    beta_wins: bool, expected: dict[str, str]
) -> None:
    assert after(node(labelled(BETA | OTHER)), None, beta_wins).labels == expected


@pytest.mark.parametrize(
    "tweak",
    [
        pytest.param(labelled(GA), id="other-values"),
        pytest.param(labelled(BETA | GA), id="under-both-keys"),
        pytest.param(labelled({"mine": "x"}), id="none-of-them"),
        pytest.param(with_provider_id("fake://1"), id="no-labels-at-all"),
    ],
)
@pytest.mark.parametrize("beta_wins", [False, True])
def test_type_zone_and_region_follow_the_machine(tweak: Tweak, beta_wins: bool) -> None:
    before = node(tweak)
    result = after(before, machine(type="t2", zone="z2", region="r2"), beta_wins)
    expected = dict(zip(GA, ["z2", "r2", "t2"], strict=True))
    assert {key: result.labels.get(key) for key in GA} == expected
    assert result.labels.keys() - GA.keys() == before.labels.keys() - GA.keys()


def test_the_cloud_has_the_last_word_about_a_pair_that_differs() -> None:
    before = node(labelled(BETA | OTHER))
    result = after(before, machine(type="other", zone="other", region="other"), beta_wins=True)
    assert result.labels == dict.fromkeys(BETA | GA, "other")


def test_what_the_cloud_does_not_say_stays() -> None:
    before = node(labelled(GA), with_addresses("InternalIP 10.0.0.1"))
    assert list(plan_update(before, machine(), beta_wins=False)) == []


def test_a_label_that_the_cloud_adds_later_is_added_and_never_overwrites() -> None:
    instance = Instance("fake://1", labels={"rack": "7", "mine": "y"})
    result = after(node(labelled({"mine": "x"})), instance)
    assert result.labels == {"rack": "7", "mine": "x"}


def test_addresses_follow_the_machine() -> None:
    before = node(with_addresses("InternalIP 10.0.0.1", "Hostname mine"))
    result = after(before, machine("fake://1", "InternalIP 10.0.0.2"))
    assert (
        result.addresses == node(with_addresses("InternalIP 10.0.0.2", "Hostname mine")).addresses
    )


def test_labels_follow_although_the_addresses_cannot() -> None:
    before = node(provided_ip("10.9.9.9"))
    actions = plan_update(
        before, machine("fake://1", "InternalIP 10.0.0.1", zone="z"), beta_wins=False
    )
    assert isinstance(next(actions), SetLabels)
    with pytest.raises(CannotPlan, match=r"10\.9\.9\.9"):
        next(actions)


@given(tweaks, machines, st.booleans(), st.integers(0, 2))
def test_an_interrupted_plan_converges_to_the_same_node(
    some: list[Tweak], instance: Instance, beta_wins: bool, performed: int
) -> None:
    before = node(*some)
    states = [before.raw]
    try:
        for action in plan_update(before, instance, beta_wins):
            states.append(patched(states[-1], patch_for(before, action).operations))
    except CannotPlan:
        return
    resumed = after(Node(states[min(performed, len(states) - 1)]), instance, beta_wins)
    assert resumed.raw == states[-1]
    assert list(plan_update(resumed, instance, beta_wins)) == []
