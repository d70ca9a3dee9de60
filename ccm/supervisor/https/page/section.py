"""One part of the page: a heading and a table, made of entries that are facts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.supervisor.https.page.markup import Markup, element
from ccm.supervisor.https.page.words import plain

MOST = 50  # rows in a table

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """The fact of an entry that it shows, and how that reads."""

    title: str
    fact: str
    shown: Callable[[object], str] = plain


@dataclass(frozen=True, slots=True)
class Section:
    """The first column names the entry. `total` counts also the entries that are not here.

    `otherwise` is said in place of an empty table, `remarks` in any case.
    """

    anchor: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    entries: Sequence[Facts]
    otherwise: str
    total: int = 0
    remarks: tuple[str, ...] = ()

    def markup(self) -> Markup:
        return element(
            "section",
            element("h2", self.title, id=self.anchor),
            *(element("p", plain(remark)) for remark in self.remarks),
            self._table() if self.entries else element("p", self.otherwise),
            aria_labelledby=self.anchor,
        )

    def _table(self) -> Markup:
        shown = self.entries[:MOST]
        more = max(self.total, len(self.entries)) - len(shown)
        titles = (element("th", column.title, scope="col") for column in self.columns)
        foot = element("td", f"and {more:,} more", colspan=str(len(self.columns)))
        return element(
            "table",
            element("caption", self.caption),
            element("thead", element("tr", *titles)),
            element("tbody", *map(self._row, shown)),
            element("tfoot", element("tr", foot)) if more > 0 else "",
        )

    def _row(self, entry: Facts) -> Markup:
        name, *others = (column.shown(entry.get(column.fact)) for column in self.columns)
        return element(
            "tr", element("th", name, scope="row"), *(element("td", other) for other in others)
        )
