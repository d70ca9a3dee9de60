"""Zones as the value of a label (row VH3)."""

import pytest

from ccm.model.volume import read_zones, zones_text


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
