"""Sizes of volumes in the units of clouds (rows VH1 and VH2)."""

import pytest

from ccm.cloud.volume_sizes import BYTE, GB, GIB, INT32, KB, KIB, MB, MIB, round_up


@pytest.mark.parametrize(
    ("quantity", "unit", "expected"),
    [
        pytest.param("1000Ki", GIB, 1, id="VH1-1000Ki"),
        pytest.param("1000Mi", GIB, 1, id="VH1-1000Mi"),
        pytest.param("1000M", GIB, 1, id="VH1-1000M"),
        pytest.param("1000G", GIB, 932, id="VH1-1000G"),
        pytest.param("1000Gi", GIB, 1000, id="VH1-1000Gi"),
        pytest.param("1.2Gi", GIB, 2, id="VH1-1.2Gi"),
        pytest.param("8191Pi", GIB, 8588886016, id="VH1-8191Pi"),
        pytest.param("1000Ki", MB, 2, id="VH2-MB-1000Ki"),
        pytest.param("1000Mi", MB, 1049, id="VH2-MB-1000Mi"),
        pytest.param("1.2Gi", MB, 1289, id="VH2-MB-1.2Gi"),
        pytest.param("1000Ki", KB, 1024, id="VH2-KB-1000Ki"),
        pytest.param("8191Pi", KB, 9222246136947934, id="VH2-KB-8191Pi"),
        pytest.param("1000M", MIB, 954, id="VH2-MiB-1000M"),
        pytest.param("1.2Gi", MIB, 1229, id="VH2-MiB-1.2Gi"),
        pytest.param("1000k", KIB, 977, id="VH2-KiB-1000k"),
        pytest.param("1000M", KIB, 976563, id="VH2-KiB-1000M"),
        pytest.param("987m", BYTE, 1, id="VH2-bytes-987m"),
        pytest.param("1.2Gi", BYTE, 1288490189, id="VH2-bytes-1.2Gi"),
        ("0", GIB, 0),
        ("1", GIB, 1),
        ("5e9", GB, 5),
        ("1E", GB, 10**9),
        ("1E3", BYTE, 1000),
        ("1e-3", BYTE, 1),
        (".5Mi", KIB, 512),
        ("5.", BYTE, 5),
        ("1u", BYTE, 1),
    ],
)
def test_a_size_is_rounded_up_to_whole_units(quantity: str, unit: int, expected: int) -> None:
    assert round_up(quantity, unit) == expected


@pytest.mark.parametrize(
    "quantity",
    [
        pytest.param("8192Pi", id="VH1-8192Pi"),
        str(2**63 - 1),
        "1e999",
        "",
        "Gi",
        "1 Gi",
        "1gi",
        "-1Gi",
        "1e",
        "1e9999999999",
        "1/2",
        "½",
        "1Gi\n",
    ],
)
def test_what_is_no_size_is_an_error(quantity: str) -> None:
    with pytest.raises(ValueError):
        round_up(quantity, GIB)


def test_a_size_is_held_to_what_the_api_of_a_cloud_takes() -> None:
    assert round_up("2147483647Gi", GIB, most=INT32) == INT32
    with pytest.raises(ValueError, match="more than 2147483647 units"):
        round_up("2147483648Gi", GIB, most=INT32)
