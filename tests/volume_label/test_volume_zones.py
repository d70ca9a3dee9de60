"""Zones as text in a label or a StorageClass parameter (row VH3)."""

import pytest

from ccm.model.volume import IN_LABEL, IN_PARAMETER, read_zones, zones_text


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
