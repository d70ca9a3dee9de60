"""How `check` looks to a person: one row a finding, the remedy below the message."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ccm.checks.finding import CheckState
from ccm.checks.run import CheckResult

COLOURS = {
    CheckState.OK: "green",
    CheckState.NOT_CHECKED: "cyan",
    CheckState.WARNING: "yellow",
    CheckState.FAILED: "bold red",
}


def check_view(results: Sequence[CheckResult]) -> RenderableType:
    """All findings, and how many there are of each state."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("check", "state", "finding"):
        table.add_column(column, no_wrap=column != "finding", overflow="fold")
    for result in results:
        for number, finding in enumerate(result.findings):
            colour = COLOURS[finding.state]
            remedy = f"\n[dim]→[/] {escape(finding.remedy)}" if finding.remedy else ""
            table.add_row(
                result.name if not number else "",
                f"[{colour}]{finding.state}[/]",
                escape(finding.message) + remedy,
            )
    return Group(table, "", summary(results))


def summary(results: Sequence[CheckResult]) -> str:
    states = [result.state for result in results]
    counts = [f"{states.count(state)} {state}" for state in CheckState if state in states]
    return f"{len(results)} checks: {', '.join(counts)}"
