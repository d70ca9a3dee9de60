"""How costs grow with the number of nodes, as one picture: `python -m bench.plots`."""

from pathlib import Path
from typing import Any

from matplotlib import pyplot

from bench.results import recorded

PICTURE = Path("docs/performance.png")
SIDES = {"floor": "bare load generator", "cold": "cold start", "arriving": "nodes arrive"}
PANELS = ("wall s", "CPU ms a node", "PSS MiB")


def main() -> None:
    """Draw what `bench/results.jsonl` has of the part `initialise`."""
    rows = next(record["rows"] for record in recorded() if record["part"] == "initialise")
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(12, 3.6), layout="constrained")
    for panel, axis in zip(PANELS, axes, strict=True):
        for side, label in SIDES.items():
            points = _points(rows, side, panel)
            if any(value for _, value in points):
                axis.plot(*zip(*points, strict=True), marker="o", label=label)
        axis.set(xlabel="nodes", title=panel, xlim=(0, None), ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(PICTURE, dpi=110)


def _points(rows: list[dict[str, Any]], side: str, what: str) -> list[tuple[int, float]]:
    """The medians over the number of nodes; `median (least–most)` is cut to its first number."""
    chosen = [row for row in rows if row["side"] == side]
    return [(row["nodes"], float(str(row[what]).split()[0])) for row in chosen]


if __name__ == "__main__":
    main()
