"""The view on a Node reads what is there and never raises."""

from inspect import getmembers
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.model.objects import PROVIDED_NODE_IP, UNINITIALIZED_TAINT, Node
from tests.support.nodes import (
    PROVIDER_IDS,
    labelled,
    node,
    provided_ip,
    ready,
    tainted,
    with_provider_id,
)

FIELDS = [
    *("metadata", "spec", "status", "name", "uid", "labels", "annotations", "providerID"),
    *("taints", "addresses", "conditions", "key", "type", PROVIDED_NODE_IP),
]
names = st.sampled_from(FIELDS) | st.text()
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
any_json = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=30,
)
metadata = st.dictionaries(st.sampled_from(FIELDS), any_json, max_size=4)
any_object = st.dictionaries(names, any_json, max_size=4) | st.fixed_dictionaries(
    {}, optional={"metadata": metadata, "spec": metadata, "status": metadata}
)


@given(any_object)
def test_any_json_object_can_be_read_as_a_node(raw: dict[str, Any]) -> None:
    node = Node(raw)
    for name, _ in getmembers(Node, lambda member: isinstance(member, property)):
        getattr(node, name)
    node.is_foreign(PROVIDER_IDS)


@given(any_json)
def test_what_is_not_text_is_read_as_no_text(value: Any) -> None:
    odd = Node({"metadata": {"name": value, "uid": value}, "spec": {"providerID": value}})
    expected = value if isinstance(value, str) else ""
    assert (odd.name, odd.uid, odd.provider_id) == (expected, expected, expected)


def test_a_node_is_read() -> None:
    view = node(tainted, ready, with_provider_id("fake://1"), labelled({"a": "b"}))
    assert (view.name, view.provider_id, view.labels["a"]) == ("node-1", "fake://1", "b")
    assert view.is_uninitialized
    assert view.is_ready
    assert view.taints[-1]["key"] == UNINITIALIZED_TAINT


@pytest.mark.parametrize("status", ["False", "Unknown", "", None, True])
def test_only_the_word_true_is_ready(status: object) -> None:
    raw = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    assert not Node(raw).is_ready


@pytest.mark.parametrize(
    ("provider_id", "expected"),
    [
        ("", False),
        ("fake://1", False),
        ("fake:///zone/1", False),
        ("other://1", True),
        ("fake", True),
        ("fakes://1", True),
        ("FAKE://1", True),
    ],
)
def test_a_node_with_anothers_provider_id_is_foreign(provider_id: str, expected: bool) -> None:
    assert node(with_provider_id(provider_id)).is_foreign(PROVIDER_IDS) is expected


def test_an_empty_provided_ip_is_not_the_same_as_none() -> None:
    assert node(provided_ip("")).provided_node_ip == ""
    assert node().provided_node_ip is None
