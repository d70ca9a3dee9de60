"""What a node affinity says about zones, and the one that is written."""

import pytest

from ccm.model.objects import Json
from workers.volume_label.plan import admits

from .volumes import OLD_REGION, OLD_ZONE, REGION, ZONE, requirement, terms

DRIVER_ZONE = "topology.driver.example/zone"
HOST = "kubernetes.io/hostname"
IN_A, IN_B = requirement(ZONE, "In", "a"), requirement(ZONE, "In", "b")


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(None, True, id="none"),
        pytest.param({}, True, id="without-required"),
        pytest.param(terms([IN_A]), True, id="in"),
        pytest.param(terms([IN_B]), False, id="in-another"),
        pytest.param(terms([requirement(ZONE, "In", "b", "a")]), True, id="in-several"),
        pytest.param(terms([requirement(ZONE, "NotIn", "b")]), True, id="not-in-another"),
        pytest.param(terms([requirement(ZONE, "NotIn", "a")]), False, id="not-in"),
        pytest.param(terms([requirement(ZONE, "Exists")]), True, id="exists"),
        pytest.param(terms([requirement(ZONE, "DoesNotExist")]), False, id="does-not-exist"),
        pytest.param(terms([requirement(ZONE, "Gt", "1")]), False, id="a-zone-as-number"),
        pytest.param(terms([requirement(OLD_ZONE, "In", "a")]), True, id="old-key"),
        pytest.param(terms([requirement(OLD_ZONE, "In", "b")]), False, id="old-key-another"),
        pytest.param(terms([requirement(DRIVER_ZONE, "In", "b")]), False, id="key-of-a-driver"),
        pytest.param(terms([requirement(REGION, "In", "north")]), True, id="region"),
        pytest.param(terms([requirement(REGION, "In", "south")]), False, id="another-region"),
        pytest.param(terms([requirement(OLD_REGION, "In", "south")]), False, id="old-region"),
        pytest.param(terms([IN_A, requirement(REGION, "In", "south")]), False, id="and"),
        pytest.param(terms([IN_B], [IN_A]), True, id="or"),
        pytest.param(terms([requirement(HOST, "In", "node-1")]), True, id="another-key"),
        pytest.param(terms([requirement("zone", "In", "b")]), True, id="a-key-without-domain"),
        pytest.param(terms([]), False, id="an-empty-term"),
        pytest.param(terms(), False, id="no-terms"),
        pytest.param({"required": {}}, False, id="no-list-of-terms"),
        pytest.param({"required": {"nodeSelectorTerms": ["a"]}}, False, id="no-objects"),
        pytest.param(terms([{"key": ZONE, "operator": "In"}]), False, id="in-nothing"),
        pytest.param(
            {"required": {"nodeSelectorTerms": [{"matchFields": [requirement("f", "In", "x")]}]}},
            True,
            id="fields-only",
        ),
    ],
)
def test_whether_an_affinity_admits_a_node_in_zone_a_of_the_north(
    affinity: Json | None, expected: bool
) -> None:
    assert admits(affinity, "a", "north") is expected


def test_a_region_that_is_not_known_is_not_held_against_an_affinity() -> None:
    assert admits(terms([requirement(REGION, "In", "south")]), "a", "")
