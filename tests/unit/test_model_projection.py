"""The part of an object that a worker wants."""

from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccm.model.objects import MOST_ENTRIES, MOST_PICKED, FieldPath, paths_from_json, project
from ccm.model.service import MOST_RANGES

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
PRESSURE = {"type": "MemoryPressure", "status": "False"}
NODE = {
    "metadata": {"name": "n1", "labels": {"a/b": "c"}, "resourceVersion": "7"},
    "spec": {"podCIDRs": ["10.0.0.0/24"]},
    "status": {"conditions": [PRESSURE, READY], "addresses": []},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(("metadata", "name"), {"metadata": {"name": "n1"}}, id="a-field"),
        pytest.param(("spec",), {"spec": NODE["spec"]}, id="a-whole-object"),
        pytest.param(("metadata", "labels", "a/b"), {"metadata": {"labels": {"a/b": "c"}}}, id="/"),
        pytest.param(("spec", "providerID"), {"spec": {}}, id="missing-field"),
        pytest.param(("nothing", "here"), {}, id="missing-object"),
        pytest.param(("metadata", "name", "more"), {"metadata": {}}, id="text-has-no-fields"),
        pytest.param(
            ("status", "conditions", ("type", "Ready")),
            {"status": {"conditions": [READY]}},
            id="entries-of-a-list",
        ),
        pytest.param(
            ("status", "conditions", ("type", "Ready"), "status"),
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            id="a-field-of-entries-of-a-list",
        ),
        pytest.param(
            ("status", "conditions", ("type", "Other")), {"status": {"conditions": []}}, id="none"
        ),
    ],
)
def test_a_path_selects_its_part_in_its_shape(path: FieldPath, expected: object) -> None:
    assert project(NODE, [path]) == expected


def test_paths_survive_the_wire() -> None:
    paths = (("metadata", "name"), ("status", "conditions", ("type", "Ready"), "status"))
    on_the_wire: list[list[Any]] = [
        ["metadata", "name"],
        ["status", "conditions", ["type", "Ready"], "status"],
    ]
    assert paths_from_json(on_the_wire) == paths


# Whatever the object and the paths.

keys = st.sampled_from(["a", "b", "c"])
leaves = st.none() | st.booleans() | st.integers(0, 3) | keys
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=20,
)
steps = keys | st.tuples(keys, keys)
any_paths = st.lists(st.lists(steps, min_size=1, max_size=4).map(tuple), max_size=4)


@given(trees, any_paths)
def test_any_object_can_be_projected(raw: Any, paths: list[FieldPath]) -> None:
    assert isinstance(project(raw, paths), dict)


@given(trees, any_paths)
@example({"a": {"b": [{"c": "a"}]}}, [("a",), ("a", "b", ("c", "a"))])
def test_projecting_changes_nothing_in_the_object(raw: Any, paths: list[FieldPath]) -> None:
    before = deepcopy(raw)
    project(raw, paths)
    assert raw == before


@given(trees, any_paths)
def test_projecting_twice_is_projecting_once(raw: Any, paths: list[FieldPath]) -> None:
    once = project(raw, paths)
    assert project(once, paths) == once


def selected(raw: Any, path: FieldPath) -> list[Any]:
    """The values at the end of `path`; a list where a step picks entries may hold several."""
    values = [raw]
    for step in path:
        if isinstance(step, str):
            values = [value[step] for value in values if isinstance(value, dict) and step in value]
        else:
            key, wanted = step
            lists = [value for value in values if isinstance(value, list)]
            values = [
                item
                for entries in lists
                for item in entries
                if isinstance(item, dict) and item.get(key) == wanted
            ]
    return values


@given(trees, any_paths)
def test_what_a_path_selects_is_in_the_projection(raw: Any, paths: list[FieldPath]) -> None:
    part = project(raw, paths)
    for path in paths:
        if isinstance(path[0], str) and not _picks_from_a_picked_list(path):
            assert selected(part, path) == selected(raw, path)


def _picks_from_a_picked_list(path: FieldPath) -> bool:
    """Whether two steps that pick entries follow each other, which selects nothing."""
    return any(not isinstance(one, str) and not isinstance(two, str) for one, two in pairwise(path))


def size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(size(inner) for inner in value.values())
    return sum(size(inner) for inner in value) if isinstance(value, list) else 1


@given(trees)
def test_what_no_path_selects_is_not_in_the_projection(raw: Any) -> None:
    part = project(raw, [("a", "b"), ("b", ("a", "c"), "b")])
    wanted = selected(raw, ("a", "b")) + selected(raw, ("b", ("a", "c"), "b"))
    entries = len(selected(part, ("b", ("a", "c"))))
    assert size(part) <= size(wanted) + entries  # an entry keeps what it was picked by


def test_no_more_is_carried_than_anyone_has_a_use_for() -> None:
    """A megabyte of them is read again with each event of a Node."""
    texts = [str(number) for number in range(1 << 16)]
    raw = {
        "metadata": {"labels": dict.fromkeys(texts)},
        "spec": {"loadBalancerSourceRanges": texts},
    }
    kept = project(raw, [("metadata", "labels"), ("spec", "loadBalancerSourceRanges")])
    assert kept["spec"]["loadBalancerSourceRanges"] == texts[:MOST_ENTRIES]
    assert [*kept["metadata"]["labels"]] == texts[:MOST_ENTRIES]
    assert MOST_ENTRIES > MOST_RANGES  # or what is refused would look like what is not


def test_of_conditions_of_one_type_without_number_the_first_are_carried() -> None:
    """Tens of thousands fit in a Node, and are read several times in each pass."""
    ready = [{"type": "Ready", "status": f"{at}"} for at in range(2 * MOST_PICKED)]
    paths: FieldPath = ("status", "conditions", ("type", "Ready"), "status")
    others = [{"type": "DiskPressure", "status": "False"}] * MOST_PICKED
    kept = project({"status": {"conditions": [*others, *ready]}}, (paths,))
    assert kept["status"]["conditions"] == ready[:MOST_PICKED]
