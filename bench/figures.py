"""Numbers of a run: medians with their spread, percentiles, and tables of them."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

Value = float | int | str
Row = dict[str, Value]


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which `share` of `values` lies; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def spread(values: Sequence[float], digits: int = 2) -> str:
    """`median (least–most)`, or the one value there is."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def table(rows: Sequence[Mapping[str, Value]]) -> str:
    """Rows as a Markdown table that is also readable as it stands."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_shown(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _shown(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 100 else _whole(value)


def _whole(value: Value) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)
