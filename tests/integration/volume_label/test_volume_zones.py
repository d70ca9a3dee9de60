"""Zones as the value of a label (row VH3), and clouds that have none."""

import pytest

from ccm.model.cloud import VolumePlace
from ccm.model.volume import read_zones, zones_text
from workers.volume_label.plan import Reject, SetLabels, plan, why_left_alone

from .volumes import (
    REGION,
    WITHOUT_ZONES,
    ZONE,
    labelled,
    requirement,
    terms,
    volume,
    with_affinity,
)


@pytest.mark.parametrize(
    "zones",
    [pytest.param(text, id=f"VH3-{text}") for text in ("", "__", "a__ __b", "__a", "a__")],
)
def test_an_empty_zone_in_a_text_is_an_error(zones: str) -> None:
    with pytest.raises(ValueError, match="empty zone"):
        read_zones(zones)


def test_zones_as_text_are_read_back() -> None:
    assert zones_text(["b", "a", "b"]) == "a__b"
    assert read_zones(" a __ b __a") == {"a", "b"}


# A cloud that has regions only.

SOMEWHERE = VolumePlace((), "north")


def test_without_zones_a_volume_is_labelled_with_its_region() -> None:
    affinity = {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": REGION, "operator": "In", "values": ["north"]}]}
            ]
        }
    }
    assert plan(volume(), SOMEWHERE, WITHOUT_ZONES) == SetLabels({REGION: "north"}, affinity)
    there = volume(with_affinity(terms([requirement("region", "In", "north")])))
    assert plan(there, SOMEWHERE, WITHOUT_ZONES) == SetLabels({REGION: "north"}, None)
    done = volume(labelled(region="north"), with_affinity(affinity))
    assert why_left_alone(done, WITHOUT_ZONES) == "labelled"


def test_where_zones_may_be_missing_those_that_there_are_are_labels() -> None:
    place = VolumePlace(("north-2",), "north")
    made = plan(volume(), place, WITHOUT_ZONES)
    assert isinstance(made, SetLabels)
    assert made.labels == {ZONE: "north-2", REGION: "north"}


def test_without_zones_the_region_has_to_be_known_and_to_agree() -> None:
    unknown = plan(volume(), VolumePlace((), ""), WITHOUT_ZONES)
    assert isinstance(unknown, Reject)
    assert unknown.reason == "ZoneNotFound"
    for tweak, reason in (
        (labelled(region="south"), "LabelConflict"),
        (with_affinity(terms([requirement(REGION, "In", "south")])), "NodeAffinityConflict"),
    ):
        refused = plan(volume(tweak), SOMEWHERE, WITHOUT_ZONES)
        assert isinstance(refused, Reject)
        assert refused.reason == reason
