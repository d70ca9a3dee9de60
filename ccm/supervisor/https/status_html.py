"""HTML of the status page: escaped markup, formatted values, tables, and how it looks."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Any

from ccm.durations import format_duration
from ccm.model.objects import number

MAX_ROWS = 50  # of a table
MAX_TEXT = 300  # characters of one value
DASH = "–"
VOID_ELEMENTS = ("meta",)
GOOD = ("running", "standby", "skipped", "closed", "ensured", "permit", "recovered")
BAD = ("failed", "backoff", "open", "refused", "held", "critical")

TableEntry = Mapping[str, Any]
"""Values of a row by the keys of the columns."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, /, *content: object, **attributes: str) -> Markup:
    """`<tag …>content</tag>`; the attribute `http_equiv` is `http-equiv`, `class_` is `class`."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
    )
    end = "" if tag in VOID_ELEMENTS else f"{join(*content)}</{tag}>"
    return Markup(f"<{tag}{written}>{end}")


def join(*content: object) -> Markup:
    """The parts one after the other, escaped where they are no markup."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(str(part)) for part in content)
    )


# Formatting. Values of the wrong type or out of range read as a dash or 0.


def plain(value: object) -> str:
    """Text of limited length."""
    text = "" if value is None else str(value)
    return f"{text[: MAX_TEXT - 1]}…" if len(text) > MAX_TEXT else text or DASH


def state(value: object) -> Markup:
    """Coloured; the text says it, too."""
    text = plain(value)
    tone = "good" if text in GOOD else "bad" if text in BAD else "fair"
    return element("strong", text, class_=tone)


def count(value: object) -> str:
    """`1,234`"""
    return DASH if value is None else f"{number(value):,.0f}"


def rate(value: object) -> str:
    """`2.5`"""
    return DASH if value is None else f"{number(value):,g}"


def mebibytes(value: object) -> str:
    """`64 MiB`, of bytes."""
    return DASH if value is None else f"{number(value) / 2**20:,.0f} MiB"


def duration(value: object) -> str:
    """With a useful precision: `3.2s`, `45s`, `5m20s`, `26h3m`."""
    if value is None:
        return DASH
    seconds = max(number(value), 0.0)
    step = 0.1 if seconds < 10 else 1 if seconds < 3600 else 60
    return format_duration(round(seconds / step) * step)


def ago(value: object) -> str:
    """`3.2s ago`"""
    return DASH if value is None else f"{duration(value)} ago"


def until(value: object) -> str:
    """`in 3.2s`"""
    return DASH if value is None else f"in {duration(value)}"


def listing(value: object) -> str:
    """`a, b`"""
    return plain(", ".join(map(str, value)) if isinstance(value, list) else value)


def plural(many: object, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count(many)} {noun if number(many) == 1 else f'{noun}s'}"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """Title, key of the value in an entry, and how it is formatted."""

    title: str
    key: str
    format: Callable[[object], str] = plain


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and a table; the first column names the entry.

    `total` counts also the entries that are not here, `if_empty` stands in place of an empty table,
    `notes` stand above it in any case.
    """

    anchor: str
    title: str
    caption: str
    columns: tuple[TableColumn, ...]
    entries: Sequence[TableEntry]
    if_empty: str
    total: int = 0
    notes: tuple[str, ...] = ()

    def markup(self) -> Markup:
        """A `section` element."""
        return element(
            "section",
            element("h2", self.title, id=self.anchor),
            *(element("p", plain(note)) for note in self.notes),
            self._table() if self.entries else element("p", self.if_empty),
            aria_labelledby=self.anchor,
        )

    def _table(self) -> Markup:
        entries = self.entries[:MAX_ROWS]
        more = max(self.total, len(self.entries)) - len(entries)
        titles = (element("th", column.title, scope="col") for column in self.columns)
        foot = element("td", f"and {more:,} more", colspan=str(len(self.columns)))
        return element(
            "table",
            element("caption", self.caption),
            element("thead", element("tr", *titles)),
            element("tbody", *map(self._row, entries)),
            element("tfoot", element("tr", foot)) if more > 0 else "",
        )

    def _row(self, entry: TableEntry) -> Markup:
        name, *others = (column.format(entry.get(column.key)) for column in self.columns)
        titles = (column.title for column in self.columns[1:])
        cells = (
            element("td", other, data_title=title)
            for title, other in zip(titles, others, strict=True)
        )
        return element("tr", element("th", name, scope="row"), *cells)


STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --band: #f6f8fa;
  --link: #0550ae; --good: #116329; --fair: #7d4e00; --bad: #a40e26;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0d1117; --ink: #e6edf3; --faint: #9198a1; --line: #3d444d; --band: #151b23;
    --link: #79c0ff; --good: #56d364; --fair: #e3b341; --bad: #ff938a;
  }
}
body {
  font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 75rem; margin: 0 auto; padding: 0 1rem 2rem;
}
a { color: var(--link); }
h1 { font-size: 1.6rem; margin: 1rem 0 .5rem; }
h2 { font-size: 1.15rem; margin: 1.8rem 0 .4rem; }
p, ul { margin: .4rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; }
dd { margin: 0; }
dt, caption, tfoot, footer { color: var(--faint); }
section { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .3rem; }
th, td {
  text-align: left; vertical-align: top; padding: .25rem .6rem;
  border-bottom: 1px solid var(--line);
}
thead th { background: var(--band); }
th, td:not(:last-child) { white-space: nowrap; }
td:last-child { min-width: 6rem; }
h1, p, li, dd, td:last-child { overflow-wrap: anywhere; }
li { margin: .25rem 0; }
code { color: var(--faint); }
li > code { display: block; }
@media (min-width: 40rem) and (max-width: 70rem) {
  table { font-size: .8rem; }
  th, td { padding: .25rem .2rem; }
  thead th { white-space: normal; }
  td:last-child { min-width: 4rem; }
}
@media (max-width: 40rem) {
  thead { display: none; }
  table, caption, tbody, tfoot, tr, th, td:last-child { display: block; }
  td { display: inline-block; }
  th, td { border: 0; padding: .05rem .9rem .05rem 0; }
  th, td:not(:last-child) { white-space: normal; overflow-wrap: anywhere; }
  tr { border-bottom: 1px solid var(--line); padding: .35rem 0; }
  td[data-title]::before { content: attr(data-title) ": "; color: var(--faint); }
}
.good { color: var(--good); }
.fair { color: var(--fair); }
.bad { color: var(--bad); }
"""

CONTENT_SECURITY_POLICY = (
    "default-src 'none';"
    f" style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""This style, and nothing else of any kind."""
