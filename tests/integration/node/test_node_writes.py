"""The cheap write of a Node: the same as the careful one, and only when nobody else wrote."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.errors import KubernetesError
from ccm.kube.client import STRATEGIC_PATCH
from ccm.model.cloud import Instance
from ccm.model.objects import Json, Node
from tests.support.cluster import patched
from tests.support.nodes import (
    OTHER_TAINT,
    Tweak,
    changed,
    labelled,
    machine,
    node,
    ready,
    recreated,
    tainted,
    with_addresses,
    with_taint,
)
from workers.node.plan import SHUTDOWN, Action, SetLabels, SetTaints, patch_for, plan, written

from .test_node_interrupted import cases
from .world import world

pytestmark = pytest.mark.virtual_time

OTHERS: list[Action] = [
    SetTaints([]),
    SetTaints([SHUTDOWN, OTHER_TAINT]),
    SetLabels({"a/b": "c"}),
]
VERSION = 1  # of every node here


def without_what_is_empty(raw: Json) -> Json:
    """As an API server stores it."""
    sections = {name: raw.get(name) or {} for name in ("metadata", "spec", "status")}
    return {name: {k: v for k, v in one.items() if v} for name, one in sections.items()}


@given(cases, st.sampled_from([None, *OTHERS]))
def test_both_forms_of_a_write_do_the_same_and_we_know_what(
    case: tuple[Node, Instance], other: Action | None
) -> None:
    before, instance = case
    for action in [other] if other else plan(before, instance):
        patch = patch_for(before, action, VERSION)
        careful = patched(before.raw, patch.operations)
        cheap = patched(before.raw, patch.merge, STRATEGIC_PATCH)
        known = written(before.raw, action, careful["metadata"])
        assert without_what_is_empty(careful) == without_what_is_empty(cheap)
        assert without_what_is_empty(careful) == without_what_is_empty(known)


def test_a_node_of_unknown_version_is_only_written_with_tests() -> None:
    before = node(tainted)
    assert all(patch_for(before, action).merge is None for action in plan(before, machine()))


MACHINE = machine("fake://1", "InternalIP 10.0.0.1", zone="z")


async def test_a_write_sends_no_tests_as_long_as_the_node_is_that_of_the_plan() -> None:
    async with world() as w:
        w.put(node(tainted), answer=MACHINE)
        await w.sync()
        assert [type(body) for _, body in w.cluster.patches] == [dict, dict]
        assert w.cluster.tries == 2
        assert w.store.get("Node", "node-1") == w.entry("Node", "node-1", w.cluster.node().raw)[3]


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(
    ("meanwhile", "kept"),
    [
        pytest.param(ready, lambda n: n.is_ready, id="a-heartbeat"),
        pytest.param(
            labelled({"a": "b", "mine": "x"}), lambda n: n.labels["mine"] == "x", id="a-label"
        ),
    ],
)
async def test_what_others_write_elsewhere_meanwhile_stays(
    at: int, meanwhile: Tweak, kept: Any
) -> None:
    async with world() as w:
        w.put(node(tainted, labelled({"a": "b"})), answer=MACHINE)
        between(w.cluster, at, meanwhile)
        await w.sync()
        after = w.cluster.node()
        assert (after.is_uninitialized, after.provider_id) == (False, "fake://1")
        assert kept(after)
        assert w.cluster.tries == 3  # the one that met a conflict has tests then


@pytest.mark.parametrize(
    ("at", "meanwhile"),
    [
        pytest.param(1, with_addresses("InternalIP 10.9.9.9"), id="addresses"),
        pytest.param(1, recreated, id="another-node-at-the-first-write"),
        pytest.param(2, with_taint(OTHER_TAINT), id="a-taint"),
        pytest.param(2, recreated, id="another-node-at-the-second-write"),
    ],
)
async def test_what_a_write_would_replace_is_never_lost(at: int, meanwhile: Tweak) -> None:
    async with world() as w:
        w.put(node(tainted), answer=MACHINE)
        between(w.cluster, at, meanwhile)
        with pytest.raises(KubernetesError) as refusal:
            await w.sync()
        assert refusal.value.status == 422
        before = w.cluster.node()
        assert before.is_uninitialized
        await w.sync()
        after = w.cluster.node()
        assert not after.is_uninitialized
        assert after.uid == before.uid
        assert after.taints == [one for one in before.taints if "uninitialized" not in one["key"]]


def between(cluster: Any, number: int, tweak: Tweak) -> None:
    """Someone else writes right before the n-th write arrives."""
    left = [number]

    def write() -> None:
        left[0] -= 1
        if left[0] == 0:
            cluster.put(changed(cluster.node(), tweak))

    cluster.before_write = write
