"""Medians with their spread, percentiles, tables, and what the picture shows of them."""

import pytest

from bench import results
from bench.figures import percentile, spread
from bench.plots import PANELS, curves


@pytest.mark.parametrize(("share", "found"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)])
def test_a_percentile_is_a_value_with_that_share_below_it(share: float, found: float) -> None:
    assert percentile(map(float, range(100, 0, -1)), share) == found


def test_a_spread_is_the_median_between_the_least_and_the_most() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00–3.00)"
    assert spread([1.25, 0.5], 1) == "0.9 (0.5–1.2)"
    assert spread([3.14159]) == "3.14"


ROWS = [
    {"side": "floor", "nodes": 100, "wall s": "1.50 (1.00–2.00)", "PSS MiB": 0.0},
    {"side": "cold", "nodes": 1000, "wall s": "9.00 (8.00–9.50)", "PSS MiB": 140.5},
    {"side": "cold", "nodes": 100, "wall s": "3.25", "PSS MiB": 120.0},
]


def test_a_curve_is_the_medians_from_few_nodes_to_many() -> None:
    assert curves(ROWS, "wall s") == {
        "bare load generator": [(100, 1.5)],
        "cold start": [(100, 3.25), (1000, 9.0)],
    }
    # The floor has no such figure, so no curve.
    assert curves(ROWS, "PSS MiB") == {"cold start": [(100, 120.0), (1000, 140.5)]}


def test_what_was_measured_last_can_be_drawn() -> None:
    [rows] = [record["rows"] for record in results.recorded() if record["part"] == "initialise"]
    assert all(curves(rows, panel) for panel in PANELS)
