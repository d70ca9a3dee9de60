"""Upstream's edge cases of initializing a Node (its tests' rows CN…, CP…, TH…), as pure plans."""

from collections.abc import Mapping

import pytest

from ccm.model.cloud import Instance
from ccm.model.objects import UNINITIALIZED_TAINT, Node
from tests.support.cluster import patched
from tests.support.nodes import (
    OTHER_TAINT,
    TAINT,
    labelled,
    machine,
    node,
    provided_ip,
    ready,
    tainted,
    with_addresses,
    with_provider_id,
    with_taint,
)
from workers.node.plan import Initialize, SetAddresses, patch_for, plan

OFFERED = ("Hostname node-1.internal", "InternalIP 10.0.0.1", "ExternalIP 132.143.154.163")
ZONED: Mapping[str, str] = {
    "topology.kubernetes.io/zone": "us-west-1a",
    "failure-domain.beta.kubernetes.io/zone": "us-west-1a",
    "topology.kubernetes.io/region": "us-west",
    "failure-domain.beta.kubernetes.io/region": "us-west",
}


def initialized(node: Node, instance: Instance) -> Node:
    """The Node after everything that is planned for it was performed."""
    raw = node.raw
    for action in plan(node, instance):
        raw = patched(raw, patch_for(node, action).operations)
    return Node(raw)


def zoned(**labels: str) -> Instance:
    """A machine in the zone of `ZONED` that adds these labels; `__` stands for `/`."""
    extra = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return Instance("fake://12345", zone="us-west-1a", region="us-west", labels=extra)


INITIALIZED = [
    pytest.param(
        node(tainted, with_addresses("Hostname old")),
        machine("fake://12345", *OFFERED),
        node(with_provider_id("fake://12345"), with_addresses(*OFFERED)),
        id="CN1",
    ),
    pytest.param(
        node(tainted, with_addresses("Hostname old")),
        machine("fake://12345", *OFFERED[1:]),
        node(with_provider_id("fake://12345"), with_addresses(*OFFERED[1:], "Hostname old")),
        id="CN2",
    ),
    pytest.param(
        node(with_taint(OTHER_TAINT)),
        machine("fake://12345", *OFFERED, type="t1", zone="z", region="r"),
        node(with_taint(OTHER_TAINT)),
        id="CN3",
    ),
    pytest.param(
        node(tainted, ready),
        machine("aws://12345", zone="us-west-1a", region="us-west"),
        node(ready, with_provider_id("aws://12345"), labelled(ZONED)),
        id="CN4",
    ),
    pytest.param(
        node(with_taint(OTHER_TAINT), tainted),
        machine(),
        node(with_taint(OTHER_TAINT), with_provider_id("fake://12345")),
        id="CN5",
    ),
    pytest.param(
        node(
            tainted,
            provided_ip("10.0.0.1"),
            with_provider_id("fake://12345"),
            with_addresses("Hostname node-1"),
        ),
        machine("fake://12345", "InternalIP 10.0.0.1", "ExternalIP 132.143.154.163"),
        node(
            provided_ip("10.0.0.1"),
            with_provider_id("fake://12345"),
            with_addresses("InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname node-1"),
        ),
        id="CN7",
    ),
    pytest.param(
        node(tainted, with_provider_id("fake://12345")),
        machine("", *OFFERED),
        node(with_provider_id("fake://12345"), with_addresses(*OFFERED)),
        id="CN10",
    ),
    pytest.param(
        node(tainted),
        machine("fake://12345", *OFFERED, zone="us-west-1a", region="us-west"),
        node(with_provider_id("fake://12345"), with_addresses(*OFFERED), labelled(ZONED)),
        id="CN11",
    ),
    pytest.param(
        node(tainted),
        zoned(topology_k8s_cp__zone="z1", my_custom_label__foo="bar"),
        node(
            with_provider_id("fake://12345"),
            labelled({**ZONED, "topology.k8s.cp/zone": "z1", "my.custom.label/foo": "bar"}),
        ),
        id="CN12",
    ),
    pytest.param(
        node(tainted),
        zoned(
            topology_kubernetes_io__region="wrong",
            topology_k8s_io__region="wrong",
            kubernetes_io__foo="bar",
            k8s_io__foo="bar",
        ),
        node(with_provider_id("fake://12345"), labelled(ZONED)),
        id="CN13",
    ),
    pytest.param(
        node(tainted, labelled({"my.label/same": "1", "my.label/other": "2"})),
        zoned(my_label__same="1", my_label__other="not 2"),
        node(
            with_provider_id("fake://12345"),
            labelled({"my.label/same": "1", "my.label/other": "2", **ZONED}),
        ),
        id="CN14",
    ),
    pytest.param(
        node(tainted),
        machine("fake://12345", *OFFERED),
        node(with_provider_id("fake://12345"), with_addresses(*OFFERED)),
        id="CP7",
    ),
    pytest.param(
        node(tainted, with_provider_id("fake://asdasd")),
        machine(""),
        node(with_provider_id("fake://asdasd")),
        id="CP8",
    ),
    pytest.param(
        node(tainted, with_provider_id("fake://asdasd")),
        machine("", *OFFERED, type="t1.micro"),
        node(
            with_provider_id("fake://asdasd"),
            with_addresses(*OFFERED),
            labelled(
                {
                    "node.kubernetes.io/instance-type": "t1.micro",
                    "beta.kubernetes.io/instance-type": "t1.micro",
                }
            ),
        ),
        id="CP9",
    ),
]
"""A Node, its machine, and what the Node then is."""


@pytest.mark.parametrize(("before", "instance", "after"), INITIALIZED)
def test_initialization_does_what_upstream_does(
    before: Node, instance: Instance, after: Node
) -> None:
    assert initialized(before, instance) == after


@pytest.mark.parametrize(
    ("old", "offered", "is_changed"),
    [
        pytest.param(OFFERED[:2], OFFERED[:2], False, id="CP3"),
        pytest.param(
            OFFERED[:2], ("Hostname node-1.internal", "InternalIP 10.0.0.9"), True, id="CP4"
        ),
        pytest.param(OFFERED[:2], OFFERED, True, id="CP5"),
        pytest.param(OFFERED[:2], (), False, id="none-offered-means-leave-them"),
        pytest.param(OFFERED[:2], OFFERED[1::-1], True, id="another-order"),
    ],
)
def test_addresses_are_written_when_they_changed(
    old: tuple[str, ...], offered: tuple[str, ...], is_changed: bool
) -> None:
    actions = list(plan(node(tainted, with_addresses(*old)), machine("fake://1", *offered)))
    assert [isinstance(action, SetAddresses) for action in actions[:-1]] == [True] * is_changed


BOTH_EFFECTS = {**TAINT, "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("before", "left"),
    [
        pytest.param(node(tainted), [], id="TH1"),
        pytest.param(node(with_taint({**TAINT, "key": "other"})), None, id="TH2"),
        pytest.param(node(with_taint(OTHER_TAINT)), None, id="TH3"),
        pytest.param(
            node(with_taint({**OTHER_TAINT, "key": f"{UNINITIALIZED_TAINT}x"}), tainted),
            [{**OTHER_TAINT, "key": f"{UNINITIALIZED_TAINT}x"}],
            id="TH4",
        ),
        pytest.param(node(), None, id="TH5"),
        pytest.param(node(tainted, with_taint(BOTH_EFFECTS)), [], id="every-effect-of-the-taint"),
        pytest.param(
            node(with_taint({"key": "a"}), tainted, with_taint({"key": "b"})),
            [{"key": "a"}, {"key": "b"}],
            id="others-stay-in-order",
        ),
    ],
)
def test_only_the_uninitialized_taint_is_removed(before: Node, left: list[object] | None) -> None:
    actions = list(plan(before, machine()))
    if left is None:
        assert actions == []
    else:
        assert [action.taints_left for action in actions if isinstance(action, Initialize)] == [
            left
        ]


def test_a_machine_that_says_nothing_changes_no_label() -> None:
    before = node(tainted, labelled(ZONED))
    assert dict(initialized(before, machine()).labels) == ZONED


def test_type_zone_and_region_overwrite_what_the_node_says() -> None:
    before = node(tainted, labelled(dict.fromkeys(ZONED, "wrong")))
    assert dict(initialized(before, zoned()).labels) == ZONED


def test_a_provider_id_that_a_node_has_is_never_changed() -> None:
    before = node(tainted, with_provider_id("fake://mine"))
    assert initialized(before, machine("fake://other")).provider_id == "fake://mine"
