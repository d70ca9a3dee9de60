"""The tables of `status`, which the sandbox shows, too, from the supervisor's status JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from ccm.printable import printable_values
from ccm.supervisor.deletion_state import why_blocked

MAX_PENDING = 10  # objects that are listed
_COLOURS = {"running": "green", "standby": "cyan", "backoff": "red", "failed": "red"}


def status_view(status: Mapping[str, Any]) -> RenderableType:
    """The whole status, most important first."""
    status = printable_values(status)
    parts: list[RenderableType] = [_leader(status), workers_table(status)]
    parts += [Text(failure, style="bold red") for failure in _failures(status)]
    if pending := _pending(status):
        parts.append(pending)
    parts += why_nothing_is_deleted(status)
    parts.append(budget_table(status))
    return Group(*parts)


def _leader(status: Mapping[str, Any]) -> Text:
    leader = status["leader"]
    is_leader = leader["is_leader"]
    head = Text("is leader", "bold green") if is_leader else Text("is not leader", "bold yellow")
    return Text.assemble(
        "ccm-supervisor ", status["version"], f", cloud {status['provider']}: ", head,
        f" ({leader['decision']}; identity {leader['identity']})",
    )  # fmt: skip


def _right(*names: str) -> list[Column]:
    return [Column(name, justify="right") for name in names]


def workers_table(status: Mapping[str, Any]) -> Table:
    """One row a worker process."""
    numbers = _right("for", "pid", "restarts", "objects", "queue", "pending")
    table = Table("worker", "state", *numbers, title="Workers", title_justify="left")
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


def why_nothing_is_deleted(status: Mapping[str, Any]) -> Iterator[Text]:
    """In lines, when that is so."""
    yield from (Text(why, "bold red") for why in why_blocked(status.get("deletions", {})))


def _failures(status: Mapping[str, Any]) -> Iterator[str]:
    """Why a worker does not start, and why a watch fails."""
    for worker in status["workers"]:
        yield from (f"{worker['name']}: {fault}" for fault in worker["faults"])
    for kind, watch in status["informer"]["kinds"].items():
        if watch["trouble"]:
            yield f"watch of {kind}: {watch['trouble']}"


def _pending(status: Mapping[str, Any]) -> Table | None:
    reasons = {
        (worker["name"], key): why
        for worker in status["workers"]
        for key, why in worker.get("reasons", {}).items()
    }
    if not reasons:
        return None
    table = Table("worker", "object", "why", title="Pending", title_justify="left")
    for (worker, key), why in list(reasons.items())[:MAX_PENDING]:
        table.add_row(worker, key, Text(why))
    if len(reasons) > MAX_PENDING:
        table.caption = f"and {len(reasons) - MAX_PENDING} more: see -o json"
    return table


def budget_table(status: Mapping[str, Any]) -> Table:
    """One row a class of cloud calls."""
    numbers = _right("calls/s now", "calls/s full", "granted", "throttled", "waiting")
    table = Table("class", *numbers, title="Cloud budget", title_justify="left")
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
