"""The tables of `status`, which the sandbox shows, too, from the supervisor's status JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from ccm.cli.fitting import WIDE, Column, Rows
from ccm.model.conform import conform
from ccm.model.status import Status
from ccm.printable import printable_values
from ccm.supervisor.https.status_html import duration

MAX_PENDING = 10  # reasons that are listed
MAX_NAMED = 8  # workers that always are
_COLOURS = {"running": "green", "standby": "cyan", "backoff": "red", "failed": "red"}


def status_view(answer: Mapping[str, Any]) -> list[Text | Rows]:
    """The whole status, most important first."""
    status = conform(Status, printable_values(answer))
    return [
        *problems_view(status),
        _leader(status),
        workers_table(status),
        *_skipped(status),
        *_waiting(status),
        budget_table(status),
    ]


def problems_view(status: Status) -> Iterator[Text | Rows]:
    """The worst problem, then what follows from it and what to type, and so for the others."""
    lines = []
    for problem in status["problems"]:
        text = f"{problem['severity']}: {problem['sentence']}"
        colour = "bold red" if problem["severity"] == "critical" else "bold yellow"
        details = (*problem["symptoms"], *problem["explain"][:1])
        lines += [Text(text, colour), *(Text(f"  {line}") for line in details)]
    yield from lines[:1]
    if lines[1:]:
        title = "Symptoms, commands, and other problems"
        yield Rows(title, [Column("")], [(line,) for line in lines[1:]], least=1)


def _leader(status: Status) -> Text:
    leader = status["leader"]
    is_leader = leader["is_leader"]
    head = Text("is leader", "bold green") if is_leader else Text("is not leader", "bold yellow")
    return Text.assemble(
        "ccm-supervisor ", status["version"], f", cloud {status['provider']}: ", head,
        f" ({leader['decision']}; identity {leader['identity']})",
    )  # fmt: skip


def _columns(text: str, numbers: str, wide: str = "") -> list[Column]:
    """Columns of text, then of numbers; those in `wide` only where there is room."""
    widths = dict.fromkeys(wide.split(", "), WIDE)
    return [
        Column(name, is_number, widths.get(name, 0))
        for names, is_number in ((text, False), (numbers, True))
        for name in filter(None, names.split(", "))
    ]


def workers_table(status: Status) -> Rows:
    """One row a worker process; what is wrong comes first."""
    workers = sorted(status["workers"], key=lambda worker: worker["state"] == "running")
    rows = [
        (
            worker["name"],
            Text(worker["state"], style=_COLOURS.get(worker["state"], "yellow")),
            duration(worker["state_seconds"]),
            str(worker["pid"] or "-"),
            str(worker["restarts"]),
            str(worker.get("objects", "-")),
            str(worker["queue"]["ready"]) if "queue" in worker else "-",
            str(worker.get("pending", "-")),
        )
        for worker in workers
    ]
    columns = _columns(
        "worker, state",
        "for, pid, restarts, objects, queue, pending",
        "pid, restarts, objects, queue",
    )
    brief = ", ".join(f"{item['name']} {item['state']} ({item['pid'] or '-'})" for item in workers)
    if len(rows) > MAX_NAMED:
        states = Counter(worker["state"] for worker in workers)
        brief = ", ".join(f"{count} {state}" for state, count in states.items())
    return Rows("Workers", columns, rows, least=min(len(rows), MAX_NAMED), brief=brief)


def _skipped(status: Status) -> Iterator[Text]:
    """A line for each worker that has nothing to do, with the reason."""
    for worker in status["workers"]:
        if worker["state"] == "skipped" and worker["faults"]:
            yield Text(f"{worker['name']} is skipped: {'; '.join(worker['faults'])}")


def _waiting(status: Status) -> Iterator[Rows]:
    """What waits and does not fail; failures are problems."""
    rows = [
        (
            worker["name"],
            str(group["count"]),
            duration(group["seconds"]),
            ", ".join(group["names"][:2]) + ", …" * (group["count"] > 2),
            group["why"],
        )
        for worker in status["workers"]
        for group in worker.get("pending_groups", ())
        if not group["is_failure"]
    ]
    if rows:
        columns = _columns("worker, objects, for, first, why", "", "first")
        yield Rows("Waiting", columns, rows, most=MAX_PENDING)


def budget_table(status: Status) -> Rows:
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
    columns = _columns(
        "class", "calls/s now, calls/s full, granted, throttled, waiting", "calls/s full, throttled"
    )
    brief = ", ".join(
        f"{name} {budget['per_second']:g}/s, {budget['granted']} granted"
        for name, budget in classes
    )
    return Rows("Cloud budget", columns, rows, least=2, brief=brief)
