"""What the picture shows of a run."""

from pathlib import Path

import pytest

from bench import plots, results
from bench.plots import PANELS, curves

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


def test_a_side_without_such_a_figure_has_no_curve() -> None:
    assert curves(ROWS, "PSS MiB") == {"cold start": [(100, 120.0), (1000, 140.5)]}


def test_what_was_measured_last_can_be_drawn() -> None:
    [rows] = [record["rows"] for record in results.recorded() if record["part"] == "initialise"]
    assert all(curves(rows, panel) for panel in PANELS)


def test_without_figures_it_says_how_to_get_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "LINES", tmp_path / "none")
    with pytest.raises(SystemExit, match="python -m bench initialise"):
        plots.main()
