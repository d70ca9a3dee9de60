"""Documents of another process, or of another version, become what they should be."""

from typing import Any, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.model.conform import conform
from ccm.model.status import Status, WorkerReport
from tests.support.properties import examples


class Leaf(TypedDict):
    name: str
    age: float


class Tree(TypedDict):
    count: int
    since: float | None
    leaf: Leaf
    leaves: list[Leaf]
    by_name: dict[str, float]
    is_known: NotRequired[bool]


GOOD: dict[str, Any] = {
    "count": 1,
    "since": None,
    "leaf": {"name": "a", "age": 1},
    "leaves": [{"name": "b", "age": 0.5}],
    "by_name": {"c": 2.0},
    "is_known": True,
}
EMPTY: dict[str, Any] = {
    "count": 0,
    "since": None,
    "leaf": {"name": "", "age": 0.0},
    "leaves": [],
    "by_name": {},
}


def test_a_good_document_stays_as_it_is_with_keys_of_a_newer_version() -> None:
    assert conform(Tree, GOOD | {"newer": [1]}) == GOOD | {"newer": [1]}


@pytest.mark.parametrize(
    ("changes", "becomes"),
    [
        pytest.param({"count": "many"}, {"count": 0}, id="required-is-empty"),
        pytest.param({"count": True}, {"count": 0}, id="a-boolean-is-no-number"),
        pytest.param({"since": "now"}, {"since": None}, id="of-a-union-none"),
        pytest.param({"since": 3}, {"since": 3}, id="a-whole-number-is-a-float"),
        pytest.param({"since": float("nan")}, {"since": None}, id="not-a-number"),
        pytest.param(
            {"leaf": {"name": 7, "age": 2.0}}, {"leaf": {"name": "", "age": 2.0}}, id="in"
        ),
        pytest.param({"leaf": None}, {"leaf": EMPTY["leaf"]}, id="of-a-document-an-empty-one"),
        pytest.param({"leaves": [5, {}]}, {"leaves": [EMPTY["leaf"]]}, id="items-are-left-out"),
        pytest.param({"by_name": {"a": "x", "b": 1.0}}, {"by_name": {"b": 1.0}}, id="entries"),
    ],
)
def test_what_has_another_type_is_left_out(
    changes: dict[str, Any], becomes: dict[str, Any]
) -> None:
    assert conform(Tree, GOOD | changes) == GOOD | becomes


def test_what_is_optional_goes_when_it_is_wrong() -> None:
    assert "is_known" not in conform(Tree, GOOD | {"is_known": "yes"})


def test_nothing_is_an_empty_document() -> None:
    assert conform(Tree, {}) == conform(Tree, "x") == EMPTY
    assert conform(WorkerReport, None) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["workers", "queue", "leader", "ready", "x"]), inner)
    ),
)


@examples(100)
@given(JSON)
def test_whatever_comes_in_a_second_look_changes_nothing(value: Any) -> None:
    status = conform(Status, value)
    assert conform(Status, status) == status
