"""The rows of `tests/rows.tsv`: cases that tests have to hold, of upstream and of each cloud.

A test carries a row of upstream's when the id of one of its cases begins with the row's:
`id="CN1"`, `id="VH3-comma"`, `id="SH5-SH6"`, or `@row("SN2")` where there are no cases. It holds a
row of a cloud when its file, below that cloud's folder, names it, mostly in a docstring.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DIFFERENCES = sorted((TESTS.parent / "docs").glob("differences*.md"))
CLOUDS = {
    "AZ": "azure",
    "DO": "digitalocean",
    "GC": "gce",
    "IN": "incus",
    "OS": "openstack",
    "PX": "proxmox",
    "VS": "vsphere",
}
"""What the ids of a cloud's rows begin with, and the folder of its tests; others are upstream's."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case. `needs_both`: an API server decides it, so both of ours are asked."""

    id: str
    needs_both: bool
    open: str
    """Why no test holds it; mostly empty."""
    says: str

    @property
    def cloud(self) -> str:
        """The folder of the cloud's tests; empty for upstream's rows."""
        return CLOUDS.get(self.id[:2], "")


def read_rows() -> dict[str, Row]:
    """The table, in its order."""
    with (TESTS / "rows.tsv").open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {
            line["id"]: Row(line["id"], line["servers"] == "both", line["open"], line["row"])
            for line in lines
        }


def upstream_rows() -> dict[str, Row]:
    return {key: row for key, row in read_rows().items() if not row.cloud}


_GROUPS = "|".join(sorted({key[:2] for key in upstream_rows()}))
_ID = re.compile(rf"(?<![A-Za-z0-9])(?:{_GROUPS})\d+(?![A-Za-z0-9])")
_QUOTED = re.compile(rf'"((?:{_GROUPS})\d+[^"]*)"')
_OF_CLOUD = re.compile(rf"\b(?:{'|'.join(CLOUDS)})\d+\b")


def ids_in(text: str) -> set[str]:
    """What in this text looks like the id of one of upstream's rows."""
    return set(_ID.findall(text))


def row(*ids: str) -> pytest.MarkDecorator:
    """Let a test without cases of its own carry these rows."""
    return pytest.mark.parametrize((), [pytest.param(id="-".join(ids))])


def named() -> Iterator[tuple[str, str]]:
    """Row and file for each row that a test carries or holds."""
    for path in sorted(TESTS.rglob("test_*.py")):
        where, text = str(path.relative_to(TESTS)), path.read_text(encoding="utf-8")
        for quoted in _QUOTED.findall(text):
            for found in ids_in(quoted):
                yield found, where
        for found in _OF_CLOUD.findall(text):
            if where.startswith(f"providers/{CLOUDS[found[:2]]}/"):
                yield found, where


def differences() -> dict[str, str]:
    """Row → the section of the pages of differences that says why we do otherwise."""
    found: dict[str, str] = {}
    section = ""
    for page in DIFFERENCES:
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                title = line.lstrip("# ").lower()
                section = re.sub(r"[^\w -]", "", title).replace(" ", "-")
            for key in ids_in(line):
                found[key] = f"docs/{page.name}#{section}"
    return found
