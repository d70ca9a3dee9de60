"""Views that fit the terminal: tables share its lines, each with its first rows, a line a row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from textwrap import wrap

from rich.console import (  # for their types
    Console,  # noqa: TID251
    ConsoleOptions,
    JustifyMethod,
    RenderResult,
)
from rich.table import Table
from rich.text import Text

Cell = str | Text

WIDE = 64  # characters of a terminal that has room for every column
MAX_CELL = 40  # characters of a cell on one line; the last of a row has what is left
MIN_LAST_CELL = 10
COMMENT = "   # "
"""Before the comment on a command in a cell, which goes rather than that the command is cut."""


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table; left out on a terminal that is not `from_width` characters wide."""

    name: str
    is_number: bool = False
    from_width: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """A table, what matters most first; without names of columns it has no line for them.

    At least `least` rows are shown, at most `most`. `brief` stands in its place where there is no
    room even for the least. Where not all fit, `turn` of a live view counts which of them come.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    least: int = 3
    most: int = 1000
    brief: str = ""
    turn: int = 0
    starts: Sequence[int] = ()  # of lines that take several rows; each is one otherwise

    def wrapped(self, width: int) -> "Rows":
        """Without names of columns, where a line is a sentence or a command: none of it is cut.

        A comment goes where its command fills the line.
        """
        if self.head > 1:
            return self
        rows: list[tuple[Cell]] = []
        starts: list[int] = []
        for line in (_text(cell).plain for (cell,) in self.rows):
            short = line if len(line) <= width else line.partition(COMMENT)[0]
            pieces = wrap(short, width, subsequent_indent="    ", break_on_hyphens=False)
            starts.append(len(rows))
            rows += [(piece,) for piece in pieces]
        return replace(self, rows=rows, starts=starts)

    @property
    def height_of_first(self) -> int:
        """Rows of its first line."""
        return self.starts[1] if len(self.starts) > 1 else 1

    @property
    def head(self) -> int:
        """Lines that are no rows."""
        return 1 + any(column.name for column in self.columns)

    def render(self, count: int, width: int, is_one_line: bool = True) -> RenderResult:
        """The title, and the first `count` rows."""
        total, (first, end) = len(self.rows), self._page(count)
        span = f"{first + 1} to {end}" if end > first + 1 else str(end)
        which = span if self.turn else str(end)
        more = f" ({which} of {total})" if count < total else ""
        yield Text(f"{self.title}{more}", "bold")
        if count or self.head > 1:
            yield self._table(count, width, is_one_line)

    def _page(self, count: int) -> tuple[int, int]:
        """The first of at most `count` rows that are shown, and the one after the last of them.

        No line that takes several rows is divided, unless the page is too short for it.
        """
        bounds = [*(self.starts or range(len(self.rows))), len(self.rows)]
        pages = [0]
        for place, after in pairwise(bounds):
            if after - pages[-1] > count and place > pages[-1]:
                pages.append(place)
        turn = self.turn % len(pages)
        first, end = pages[turn], [*pages, len(self.rows)][turn + 1]
        return first, min(end, first + count)

    def _table(self, count: int, width: int, is_one_line: bool) -> Table:
        shown = [width >= column.from_width for column in self.columns]
        columns = list(compress(self.columns, shown))
        first, end = self._page(count)
        visible = self.rows[first:end]
        rows = [[_text(cell) for cell in compress(row, shown)] for row in visible]
        if is_one_line:
            _shorten([[Text(column.name) for column in columns], *rows], width)
        has_names = self.head > 1
        table = Table(box=None, pad_edge=False, header_style="dim", show_header=has_names)
        for column in columns:
            justify: JustifyMethod = "right" if column.is_number else "left"
            no_wrap = is_one_line or column is not columns[-1]
            table.add_column(column.name, justify=justify, no_wrap=no_wrap, overflow="fold")
        for row in rows:
            table.add_row(*row)
        return table


def _text(cell: Cell) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(cell)


def _shorten(rows: Sequence[Sequence[Text]], width: int) -> None:
    """Cut cells so that each row is one line; the last column has what the others leave."""
    *firsts, _ = zip(*rows, strict=True)
    limits = [min(max(cell.cell_len for cell in column), MAX_CELL) for column in firsts]
    limits.append(max(width - sum(limits) - len(limits), MIN_LAST_CELL))
    for row in rows:
        for cell, limit in zip(row, limits, strict=True):
            if cell.cell_len > limit:
                cell.plain = cell.plain.partition(COMMENT)[0]
            cell.truncate(limit, overflow="ellipsis")


@dataclass(frozen=True, slots=True)
class Whole:
    """All parts with all their rows, for a terminal that scrolls; long cells are wrapped."""

    parts: Sequence[Text | Rows]

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        for part in self.parts:
            if isinstance(part, Rows):
                count = min(len(part.rows), part.most)
                yield from part.render(count, console.width, is_one_line=False)
            else:
                yield part


@dataclass(frozen=True, slots=True)
class Fitted:
    """The same in no more lines than the terminal has, as long as the least of each part fits."""

    parts: Sequence[Text | Rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = [
            part.wrapped(console.width) if isinstance(part, Rows) else part for part in self.parts
        ]

        def lines(text: Text) -> int:
            return len(console.render_lines(text, options, pad=False))

        left = console.height - 1  # the cursor's
        counts: dict[int, int] = {}  # rows of each table that is shown as one
        for place, part in enumerate(parts):
            if isinstance(part, Text):
                left -= lines(part)
            elif part.brief:
                left -= lines(_brief(part))
            else:
                counts[place] = min(part.least, len(part.rows))
                left -= part.head + counts[place]
        for place, part in enumerate(parts):
            if isinstance(part, Rows) and part.brief:
                count = min(part.least, len(part.rows))
                more = part.head + count - lines(_brief(part))
                if more <= left:
                    counts[place], left = count, left - more
        _share(parts, counts, left)
        for place, part in enumerate(parts):
            if isinstance(part, Text):
                yield part
            elif place in counts:
                yield from part.render(counts[place], console.width)
            else:
                yield _brief(part)


def _share(parts: Sequence[Text | Rows], counts: dict[int, int], left: int) -> None:
    """A row more for each table in turn, until nothing is left; fewer where too much is shown."""
    tables = {place: part for place, part in enumerate(parts) if isinstance(part, Rows)}
    for place in counts:
        if (missing := min(counts[place] - tables[place].height_of_first, -left)) > 0:
            counts[place], left = counts[place] - missing, left + missing
    while left > 0:
        growing = [p for p in counts if counts[p] < min(len(tables[p].rows), tables[p].most)]
        if not growing:
            return
        for place in growing[:left]:
            counts[place] += 1
        left -= len(growing[:left])


def _brief(part: Rows) -> Text:
    return Text.assemble((f"{part.title}: ", "bold"), part.brief)
