"""The fault table: what becomes of which fault, and the test that shows it."""

import csv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parents[1]

GROUPS = {
    "api-server": "The API server refuses, hangs, lags behind or breaks off",
    "replicas": "No replica leads, another one leads, or a start ends",
    "workers": "A worker ends, hangs, restarts or grows",
    "host": "The host lacks disk, memory, descriptors or CPU time",
    "cloud": "The cloud refuses, throttles or does not answer",
    "answers": "The cloud's answers lack what is there, or have what is others'",
    "nodes": "A Node is not initialized, or a Node or a volume lacks its labels",
    "deletions": "Nodes without a machine stay, or running machines are reported as missing",
    "load-balancers": "A Service has no load balancer, or it lacks an address, a node or a port",
    "backends": "A load balancer loses Nodes, or leads to machines that are not the cluster's",
    "services": "A Service is refused, or gets less than it asks for",
    "tenants": "A Service wants what is another's, or keeps others waiting",
    "leftovers": "Ports stay open, or something stays behind in the cloud",
    "routes": "A Node has no route, or its Pods have no traffic",
    "others": "Someone writes or sends what no one should",
    "port": "Someone sends to the HTTPS port, or listens, as no one should",
}
"""What an operator sees, in the order of the pages."""
OF_CLUSTER = ("api-server", "replicas", "workers", "host")
PASSING = {
    "passing.md": OF_CLUSTER,
    "passing-clouds.md": tuple(group for group in GROUPS if group not in OF_CLUSTER),
}
"""Pages of what passes by itself, and the groups whose faults stand on each."""


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault, whom it meets, what happens then, for how long at most, and what is lost."""

    fault: str
    group: str  # one of `GROUPS`
    controller: str  # as `--controllers` names it, `all` or `supervisor`
    then: str
    within: str
    lost: str
    test: str  # file, function and case, as pytest takes it, relative to the folder of tests

    @property
    def name(self) -> str:
        """As no other row is called."""
        return f"{self.controller}: {self.fault}"


def read_rows() -> list[FaultRow]:
    """Every row, ordered by controller and fault."""
    rows = [FaultRow(**line) for line in _read_lines("rows.tsv")]
    return sorted(rows, key=lambda row: (row.controller, row.fault))


def exists(row: FaultRow) -> bool:
    """Whether its test does."""
    file, _, name = row.test.partition("::")
    path = TESTS / file
    return path.is_file() and f"def {name.partition('[')[0]}(" in path.read_text(encoding="utf-8")


def pages() -> dict[str, str]:
    """Names below `docs/faults`, each with the Markdown of one group."""
    return {f"{group}.md": _page(group, title) for group, title in GROUPS.items()}


def index() -> str:
    """The groups as a table in Markdown, for `docs/faults.md`."""
    rows = read_rows()
    lines = ["## By what you see", "", "| what you see | faults |", "|---|---|"]
    for group, title in GROUPS.items():
        count = sum(row.group == group for row in rows)
        lines.append(f"| [{title}](faults/{group}.md) | {count} |")
    return "\n".join(lines) + "\n"


def _page(group: str, title: str) -> str:
    lines = [
        f"# {title}",
        "",
        "What may be behind it; [how to read this, and other symptoms](../faults.md).",
    ]
    lines += [
        "",
        "| what breaks | controller | what happens | within | lost |",
        "|---|---|---|---|---|",
    ]
    for row in read_rows():
        if row.group == group:
            cells = (
                _sentence(row.fault),
                row.controller,
                _sentence(row.then),
                row.within,
                row.lost,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    """With a capital, where it begins with a word and not with a command, and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def passing(page: str) -> str:
    """The troubles that pass as a table in Markdown, for a page of `PASSING`."""
    rows = {row.name: row for row in read_rows()}
    lines = ["## Faults", "", "| fault | before | now | seconds | a person does |"]
    lines += ["|---|---|---|---|---|"]
    for line in _read_lines("passing.tsv"):
        row = rows[line["row"]]
        if row.group not in PASSING[page]:
            continue
        cells = (
            _sentence(row.fault),
            line["before"],
            _sentence(row.then),
            line["seconds"],
            "nothing",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _read_lines(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
