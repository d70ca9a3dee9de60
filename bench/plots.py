"""How costs grow with the number of nodes, as one picture: `python -m bench.plots`."""

import sys
from pathlib import Path
from typing import Any

from bench.results import recorded

PICTURE = Path("docs/performance.png")
SIDES = {
    "floor": "bare load generator",
    "cold": "cold start",
    "arriving": "nodes arrive",
    "upstream, tuned, cold": "upstream, tuned: cold start",
    "upstream, tuned, arriving": "upstream, tuned: nodes arrive",
}
LABELS = list(SIDES.values())
PANELS = ("wall s", "CPU ms a node", "PSS MiB")

Curve = list[tuple[int, float]]


def main() -> None:
    """Draw what `bench/results.jsonl` has of the part `initialise`."""
    found = [record["rows"] for record in recorded() if record["part"] == "initialise"]
    if not found:
        sys.exit("there is nothing to draw yet: python -m bench initialise")
    [rows] = found
    from matplotlib import pyplot  # of the extra `bench`; what is drawn is known without it

    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(12, 3.6), layout="constrained")
    for panel, axis in zip(PANELS, axes, strict=True):
        for label, curve in curves(rows, panel).items():
            colour = f"C{LABELS.index(label)}"
            axis.plot(*zip(*curve, strict=True), marker="o", label=label, color=colour)
        axis.set(xlabel="nodes", title=panel, xlim=(0, None), ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(PICTURE, dpi=110)


def curves(rows: list[dict[str, Any]], panel: str) -> dict[str, Curve]:
    """The sides that have a figure, each with its medians over the number of nodes."""
    found = {label: _points(rows, side, panel) for side, label in SIDES.items()}
    return {label: curve for label, curve in found.items() if any(value for _, value in curve)}


def _points(rows: list[dict[str, Any]], side: str, what: str) -> Curve:
    """`median (least–most)` is cut to its first number."""
    chosen = [row for row in rows if row["side"] == side]
    return sorted((row["nodes"], float(str(row[what]).split()[0])) for row in chosen)


if __name__ == "__main__":
    main()
