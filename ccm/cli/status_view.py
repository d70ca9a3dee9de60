"""The tables of `status`, which the sandbox shows, too, from the supervisor's status JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from ccm.cli.fitting import Column, Rows
from ccm.printable import printable_values
from ccm.supervisor.deletion_state import why_blocked

MAX_PENDING = 10  # objects that are listed
MAX_NAMED = 8  # workers that always are
_COLOURS = {"running": "green", "standby": "cyan", "backoff": "red", "failed": "red"}


def status_view(status: Mapping[str, Any]) -> list[Text | Rows]:
    """The whole status, most important first."""
    status = printable_values(status)
    return [
        _leader(status),
        workers_table(status),
        *(Text(failure, style="bold red") for failure in _failures(status)),
        *_skipped(status),
        *_pending(status),
        *why_nothing_is_deleted(status),
        budget_table(status),
    ]


def _leader(status: Mapping[str, Any]) -> Text:
    leader = status["leader"]
    is_leader = leader["is_leader"]
    head = Text("is leader", "bold green") if is_leader else Text("is not leader", "bold yellow")
    return Text.assemble(
        "ccm-supervisor ", status["version"], f", cloud {status['provider']}: ", head,
        f" ({leader['decision']}; identity {leader['identity']})",
    )  # fmt: skip


def _columns(text: str, numbers: str) -> list[Column]:
    return [
        *(Column(name) for name in text.split(", ")),
        *(Column(name, is_number=True) for name in numbers.split(", ")),
    ]


def workers_table(status: Mapping[str, Any]) -> Rows:
    """One row a worker process; what is wrong comes first."""
    workers = sorted(status["workers"], key=lambda worker: worker["state"] == "running")
    rows = [
        (
            worker["name"],
            Text(worker["state"], style=_COLOURS.get(worker["state"], "yellow")),
            f"{worker['state_seconds']:.0f} s",
            str(worker["pid"] or "-"),
            str(worker["restarts"]),
            str(worker.get("objects", "-")),
            str(worker.get("queue", {}).get("ready", "-")),
            str(worker.get("pending", "-")),
        )
        for worker in workers
    ]
    columns = _columns("worker, state", "for, pid, restarts, objects, queue, pending")
    brief = ", ".join(f"{one['name']} {one['state']} ({one['pid'] or '-'})" for one in workers)
    if len(rows) > MAX_NAMED:
        states = Counter(worker["state"] for worker in workers)
        brief = ", ".join(f"{count} {state}" for state, count in states.items())
    return Rows("Workers", columns, rows, least=min(len(rows), MAX_NAMED), brief=brief)


def _skipped(status: Mapping[str, Any]) -> Iterator[Text]:
    """A line for each worker that has nothing to do, with the reason."""
    for worker in status["workers"]:
        if worker["state"] == "skipped" and worker["faults"]:
            yield Text(f"{worker['name']} is skipped: {'; '.join(worker['faults'])}")


def why_nothing_is_deleted(status: Mapping[str, Any]) -> Iterator[Text]:
    """In lines, when that is so."""
    yield from (Text(why, "bold red") for why in why_blocked(status.get("deletions", {})))


def _failures(status: Mapping[str, Any]) -> Iterator[str]:
    """Why a worker does not start, and why a watch fails."""
    for worker in status["workers"]:
        if worker["state"] != "skipped":
            yield from (f"{worker['name']}: {fault}" for fault in worker["faults"])
    for kind, watch in status["informer"]["kinds"].items():
        if watch["last_error"]:
            yield f"watch of {kind}: {watch['last_error']}"


def _pending(status: Mapping[str, Any]) -> Iterator[Rows]:
    rows = [
        (worker["name"], key, why)
        for worker in status["workers"]
        for key, why in worker.get("reasons", {}).items()
    ]
    if rows:
        columns = [Column("worker"), Column("object"), Column("why")]
        yield Rows("Pending", columns, rows, most=MAX_PENDING)


def budget_table(status: Mapping[str, Any]) -> Rows:
    """One row a class of cloud calls, slowed ones first."""
    classes = sorted(
        status["budget"].items(),
        key=lambda item: item[1]["per_second"] == item[1]["full_per_second"],
    )
    rows = [
        (
            name,
            f"{budget['per_second']:g}",
            f"{budget['full_per_second']:g}",
            str(budget["granted"]),
            str(budget["throttled"]),
            str(sum(budget["waiting"].values())),
        )
        for name, budget in classes
    ]
    columns = _columns("class", "calls/s now, calls/s full, granted, throttled, waiting")
    brief = ", ".join(
        f"{name} {budget['per_second']:g}/s, {budget['granted']} granted"
        for name, budget in classes
    )
    return Rows("Cloud budget", columns, rows, least=2, brief=brief)
