"""How `status` and the sandbox look to a person: rich tables from the supervisor's own words."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

MOST = 10  # unsettled objects that are listed
_COLOURS = {"running": "green", "standby": "cyan", "backoff": "red", "failed": "red"}


def status_view(status: Mapping[str, Any]) -> RenderableType:
    """Everything `status` knows, most important first."""
    parts: list[RenderableType] = [_leader(status), workers_table(status)]
    parts += [Text(trouble, style="bold red") for trouble in _troubles(status)]
    if waiting := _waiting(status):
        parts.append(waiting)
    if stopped := deletions_line(status):
        parts.append(stopped)
    parts.append(budget_table(status))
    return Group(*parts)


def _leader(status: Mapping[str, Any]) -> Text:
    leader = status["leader"]
    head = Text("leads" if leader["is_leader"] else "stands by")
    head.stylize("bold green" if leader["is_leader"] else "bold yellow")
    return Text.assemble(
        "ccm-supervisor ", status["version"], f", cloud {status['provider']}: ", head,
        f" ({leader['decision']}; identity {leader['identity']})",
    )  # fmt: skip


def workers_table(status: Mapping[str, Any]) -> Table:
    """One row a worker process."""
    table = Table(title="Workers", title_justify="left", expand=False)
    for column in ("worker", "state", "for", "pid", "restarts", "objects", "queue", "pending"):
        table.add_column(column, justify="left" if column in ("worker", "state") else "right")
    for worker in status["workers"]:
        queue = worker.get("queue", {})
        table.add_row(
            worker["name"],
            Text(worker["state"], style=_COLOURS.get(worker["state"], "yellow")),
            f"{worker['state_seconds']:.0f} s",
            str(worker["pid"] or "-"),
            str(worker["restarts"]),
            str(worker.get("objects", "-")),
            str(queue.get("ready", "-")),
            str(worker.get("pending", "-")),
        )
    return table


def deletions_line(status: Mapping[str, Any]) -> Text | None:
    """Why no node is deleted, when that is so."""
    deletions = status.get("deletions", {})
    frozen = deletions.get("frozen")
    if frozen:
        return Text(
            f"Deletions are frozen: {frozen['why']} (by {frozen['by']})", style="bold yellow"
        )
    why = deletions.get("held") or deletions.get("trouble")
    return Text(f"Deletions are held: {why}", style="bold red") if why else None


def _troubles(status: Mapping[str, Any]) -> Iterator[str]:
    """Why a worker refuses to start, and why a watch does not work."""
    for worker in status["workers"]:
        yield from (f"{worker['name']}: {fault}" for fault in worker["faults"])
    for kind, facts in status["informer"]["kinds"].items():
        if facts["trouble"]:
            yield f"watch of {kind}: {facts['trouble']}"


def _waiting(status: Mapping[str, Any]) -> Table | None:
    reasons = {
        (worker["name"], key): why
        for worker in status["workers"]
        for key, why in worker.get("reasons", {}).items()
    }
    if not reasons:
        return None
    table = Table(title="Not settled yet", title_justify="left")
    for column in ("worker", "object", "why"):
        table.add_column(column)
    for (worker, key), why in list(reasons.items())[:MOST]:
        table.add_row(worker, key, Text(why))
    if len(reasons) > MOST:
        table.caption = f"and {len(reasons) - MOST} more: see -o json"
    return table


def budget_table(status: Mapping[str, Any]) -> Table:
    """One row a class of cloud calls."""
    table = Table(title="Cloud budget", title_justify="left")
    for column in ("class", "calls/s now", "calls/s full", "granted", "throttled", "waiting"):
        table.add_column(column, justify="left" if column == "class" else "right")
    for name, budget in status["budget"].items():
        table.add_row(
            name,
            f"{budget['per_second']:g}",
            f"{budget['full_per_second']:g}",
            str(budget["granted"]),
            str(budget["throttled"]),
            str(sum(budget["waiting"].values())),
        )
    return table
