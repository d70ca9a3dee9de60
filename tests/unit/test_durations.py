"""Durations as Kubernetes flags write them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("-0", 0.0),
        ("0s", 0.0),
        ("10s", 10.0),
        ("5m", 300.0),
        ("1h2m3s", 3723.0),
        ("3s1m", 63.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("100ms", 0.1),
        ("7us", 7e-6),
        ("7µs", 7e-6),
        ("7ns", 7e-9),
        ("+2s", 2.0),
        ("-2s", -2.0),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "s",
        "1",
        "1.5",
        "1 s",
        "1s ",
        "1d",
        "1S",
        "--1s",
        "-+1s",
        "1s,2s",
        "1e3s",
        "s1",
        ".",
    ],
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_duration(text), float)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (60, "1m"),
        (61, "1m1s"),
        (300, "5m"),
        (3600, "1h"),
        (9000, "2h30m"),
        (-90, "-1m30s"),
        (-0.5, "-500ms"),
        (60.00001, "1m0.00001s"),
        (1e-8, "0s"),
    ],
)
def test_a_duration_is_shown_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(-(10**9), 10**9))
def test_a_duration_that_is_shown_reads_as_the_same(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-6)
