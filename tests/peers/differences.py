"""What upstream's controllers and ours make different, and the lists of what is known of it."""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.peers.picture import Picture

CLOUDS = ("aws", "azure", "gce", "openstack")
ABSENT = "-"
SECTIONS = {
    "made": "What is made of the same objects",
    "over": "What ours writes when it takes over",
    "back": "What upstream's writes when it takes over",
    "left": "What is left when every Service is deleted",
}
"""Kinds of rows, and how the page calls them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A path, and what upstream's and ours have there; a write or a rest has only a path."""

    where: str
    upstream: str = ""
    ours: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Regular expressions for a difference, and what it is in words.

    `upstream` and `ours` are values as JSON, `-` for none, or empty for any.
    """

    kind: str
    where: str
    upstream: str
    ours: str
    what: str
    why: str

    def covers(self, one: Difference) -> bool:
        pairs = ((self.upstream, one.upstream), (self.ours, one.ours))
        return bool(re.fullmatch(self.where, one.where)) and all(
            not known or re.fullmatch(known, found) for known, found in pairs
        )


def read_rows(cloud: str) -> list[Row]:
    path = Path(__file__).parent / cloud / "differences.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Row(**line) for line in lines]


def compare(upstream: Picture, ours: Picture) -> Iterator[Difference]:
    """Each difference; of an object that only one side has, nothing but that."""
    reported: set[str] = set()
    there = [{part for path in side for part in _objects(path)} for side in (upstream, ours)]
    for path in sorted(upstream.keys() | ours.keys()):
        alone = next((one for one in _objects(path) if sum(one in side for side in there) == 1), "")
        if alone and alone not in reported:
            reported.add(alone)
            yield Difference(alone, *("there" if alone in side else ABSENT for side in there))
        elif not alone and upstream.get(path) != ours.get(path):
            yield Difference(path, upstream.get(path, ABSENT), ours.get(path, ABSENT))


def _objects(path: str) -> list[str]:
    """The objects that a path leads through, the outer one first."""
    words = path.split(" ")
    found = [" ".join(words[:2])]
    return [*found, " ".join(words[:4])] if words[2:3] == ["listener"] else found


def unknown(cloud: str, kind: str, found: Iterable[Difference]) -> list[Difference]:
    """Those that no row of this kind covers."""
    rows = [row for row in read_rows(cloud) if row.kind == kind]
    return [one for one in found if not any(row.covers(one) for row in rows)]


def outlived(cloud: str, kind: str, found: Iterable[Difference]) -> list[Row]:
    """The rows of this kind that cover nothing any more."""
    listed = list(found)
    return [
        row for row in read_rows(cloud) if row.kind == kind and not any(map(row.covers, listed))
    ]


def _section(title: str, rows: Iterable[Row]) -> list[str]:
    listed = dict.fromkeys(f"| {row.what} | {row.why} |" for row in rows)
    return ["", f"## {title}", "", "| what | why |", "|---|---|", *listed]


def table(cloud: str) -> str:
    """The tables of the page: each thing once, though it may take several rows to find it."""
    lines: list[str] = []
    for kind, rows in groupby(read_rows(cloud), key=lambda row: row.kind):
        lines += _section(SECTIONS[kind], rows)
    if cloud == "azure":
        lines += _section("What differs with several load balancers", read_rows(f"{cloud}/several"))
    return "\n".join([*lines[1:], ""])
