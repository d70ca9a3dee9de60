"""Zones as text, and the zones of new volumes (rows VH3 to VH10)."""

from typing import Any

import pytest

from ccm.cloud.volume_zones import Placement, allowed_zones, choose_zones, fnv1_32, select_zones
from ccm.model.node import Node
from ccm.model.objects import Json
from ccm.model.volume import IN_LABEL, IN_PARAMETER, read_zones, zones_text

from .volumes import OLD_ZONE, ZONE


def node(**labels: str) -> Node:
    return Node({"metadata": {"name": "node-1", "labels": labels}})


def topology(*zones: str, key: str = ZONE) -> Json:
    return {"matchLabelExpressions": [{"key": key, "values": [*zones]}]}


X = node(**{ZONE: "zoneX"})
WXYZ = frozenset({"zoneW", "zoneX", "zoneY", "zoneZ"})


@pytest.mark.parametrize("between", [IN_LABEL, IN_PARAMETER])
@pytest.mark.parametrize(
    "zones",
    [pytest.param(text, id=f"VH3-{text}") for text in ("", ",", "a, , b", ", a", "a,")],
)
def test_an_empty_zone_in_a_text_is_an_error(zones: str, between: str) -> None:
    with pytest.raises(ValueError, match="empty zone"):
        read_zones(zones.replace(",", between), between)


def test_zones_as_text_are_read_back() -> None:
    assert zones_text(["b", "a", "b"]) == "a__b"
    assert read_zones("a__b") == {"a", "b"}
    assert read_zones(" a , b ,a", IN_PARAMETER) == {"a", "b"}
    assert zones_text({"a", "b"}, IN_PARAMETER) == "a,b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("henley", 1180403676, id="VH4-henley"),
        pytest.param("", 2166136261, id="VH4-empty"),
    ],
)
def test_the_hash_is_fnv_1_in_32_bits(text: str, expected: int) -> None:
    assert fnv1_32(text) == expected


@pytest.mark.parametrize(
    ("zones", "claim", "count", "expected"),
    [
        pytest.param("abc", "henley", 1, "a", id="VH5-henley-1-zone"),
        pytest.param("abc", "henley", 2, "ab", id="VH5-henley-2-zones"),
        pytest.param("abc", "henley-1", 1, "b", id="VH5-henley-1-1-zone"),
        pytest.param("abc", "henley-1", 2, "ca", id="VH5-henley-1-2-zones"),
        pytest.param("abc", "medium-henley-4", 1, "b", id="VH5-medium-henley-4"),
        pytest.param("abc", "medium-henley--2", 1, "a", id="VH5-medium-henley--2"),
        pytest.param("abc", "medium-henley--4", 4, "abc", id="VH5-medium-henley--4"),
        pytest.param("abcdefghi", "henley-2", 3, "ghi", id="VH6-9-zones"),
        pytest.param("", "henley", 1, "", id="VH6-no-zones"),
        ("cba", "henley", 1, "a"),  # the order they come in does not matter
    ],
)
def test_a_claim_has_its_zones(zones: str, claim: str, count: int, expected: str) -> None:
    assert choose_zones(zones, claim, count) == set(expected)


def test_claims_of_one_pod_share_zones_and_its_neighbours_have_the_next() -> None:
    assert choose_zones("abc", "data-henley-7") == choose_zones("abc", "log-henley-7")
    of_neighbours = [choose_zones("abc", f"data-henley-{index}") for index in range(3)]
    assert frozenset().union(*of_neighbours) == {*"abc"}


def test_a_number_too_large_for_an_index_is_part_of_the_name() -> None:
    zones, claim = [f"{number:03}" for number in range(1000)], f"henley-{2**32}"
    assert choose_zones(zones, claim) == {zones[fnv1_32(claim) % 1000]}


def test_a_claim_without_a_name_has_some_zone() -> None:
    assert choose_zones("abc", "", 2) < {*"abc"}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"zone": "a", "zones": frozenset("ab")}, id="VH7-zone-and-zones"),
        pytest.param({"node": node()}, id="VH7-node-without-zone"),
        pytest.param({"node": node(**{ZONE: ""})}, id="VH7-node-with-an-empty-zone"),
        pytest.param({"node": X, "zone": "zoneX"}, id="VH7-node-and-zone"),
        pytest.param({"node": X, "zones": WXYZ}, id="VH7-node-and-zones"),
        pytest.param({"topologies": (topology("a"),), "zone": "a"}, id="VH7-topologies-and-zone"),
        pytest.param({"topologies": (topology("a", key="k"),)}, id="VH7-unknown-key"),
        pytest.param({"topologies": (topology(),)}, id="topologies-without-a-zone"),
        pytest.param({"zone": "a", "replicas": 2}, id="VH9-zone-with-2-replicas"),
        pytest.param({"zones": frozenset("a"), "replicas": 2}, id="VH9-too-few-zones"),
        pytest.param({"zones_with_nodes": frozenset("a"), "replicas": 2}, id="too-few-with-nodes"),
        pytest.param({"zones_with_nodes": frozenset("a"), "replicas": 0}, id="no-replicas"),
        pytest.param(
            {"node": X, "zones_with_nodes": frozenset("ab"), "replicas": 2}, id="node-elsewhere"
        ),
        pytest.param({}, id="nothing-given"),
    ],
)
def test_what_fights_itself_is_an_error(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        select_zones(Placement("henley", **asked))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"node": X, "topologies": (topology("zoneZ", "zoneY"),)}, {"zoneX"}, id="VH8"),
        pytest.param({"node": node(**{OLD_ZONE: "zoneX"})}, {"zoneX"}, id="the-old-label-counts"),
        pytest.param({"zone": "a"}, {"a"}, id="zone"),
        pytest.param({"zones": frozenset("abc"), "replicas": 2}, {"a", "b"}, id="zones"),
        pytest.param(
            {"topologies": (topology("a"), topology("b", key=OLD_ZONE)), "replicas": 2},
            {"a", "b"},
            id="all-that-topologies-allow",
        ),
        pytest.param({"topologies": (topology(*"cba"),)}, {"a"}, id="some-that-topologies-allow"),
        pytest.param({"zones_with_nodes": frozenset("abc")}, {"a"}, id="zones-with-nodes"),
    ],
)
def test_zones_are_selected(asked: dict[str, Any], expected: set[str]) -> None:
    assert select_zones(Placement("henley", **asked)) == expected


@pytest.mark.parametrize("claim", [pytest.param(f"henley-{n}", id=f"VH10-{n}") for n in range(6)])
def test_the_zone_of_the_node_is_among_those_selected(claim: str) -> None:
    chosen = select_zones(Placement(claim, replicas=2, node=X, zones_with_nodes=WXYZ))
    assert len(chosen) == 2
    assert "zoneX" in chosen <= WXYZ


@pytest.mark.parametrize(
    "odd", [{}, {"matchLabelExpressions": None}, {"matchLabelExpressions": [1]}]
)
def test_odd_topologies_name_no_zone(odd: Json) -> None:
    assert allowed_zones([odd]) == frozenset()
