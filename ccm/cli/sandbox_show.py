"""Running a sandbox: a live table on a terminal, progress lines or JSON otherwise."""

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ccm.cli.reporting import say, say_json, terminal
from ccm.cli.status_view import budget_table, why_nothing_is_deleted, workers_table
from ccm.errors import ExitCode
from ccm.model.objects import SHUTDOWN_TAINT
from ccm.printable import printable, printable_values
from ccm.sandbox.cluster import Sandbox, SandboxOptions
from ccm.sandbox.components import default_directory
from ccm.sandbox.observer import TYPE, ZONE, TimedNode, missing_fields, percentile
from ccm.sandbox.scenario import Scenario

MAX_NODE_ROWS = 14


@dataclass(frozen=True, slots=True)
class Show:
    """How to show it, and when to end (`timeout` in seconds); `story` None: unless it ends."""

    live: bool
    as_json: bool
    exit_when_settled: bool
    timeout: float
    story: bool | None


async def show(options: SandboxOptions, how: Show) -> int:
    """Run until settled, the timeout, or a signal; returns the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _say(how, f"starting an API server, a cloud and the supervisor in {options.directory}")
    async with Sandbox(options) as sandbox:
        adding = asyncio.create_task(sandbox.add_nodes())
        story = Scenario(sandbox)
        show_all = _live(sandbox, story) if how.live else _lines(sandbox, story, how)
        background = [adding, asyncio.create_task(show_all)]
        tells_story = not how.exit_when_settled if how.story is None else how.story
        background += [asyncio.create_task(story.run())] if tells_story else []
        try:
            is_settled = await _until_done(sandbox, how, stop)
            await adding if is_settled else adding.cancel()
            summary = await sandbox.summary(is_settled)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        if how.as_json:
            say_json(summary)
        elif how.exit_when_settled:
            _say(how, f"settled: {is_settled}; {orjson.dumps(summary).decode()}")
    return ExitCode.OK if is_settled or not how.exit_when_settled else ExitCode.FAILED


async def _until_done(sandbox: Sandbox, how: Show, stop: asyncio.Event) -> bool:
    """Whether the nodes settled; ends at a signal, or when settled or overdue if asked for."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + how.timeout
    while not stop.is_set():
        sandbox.check()
        is_settled = sandbox.is_settled
        if how.exit_when_settled and (is_settled or loop.time() > deadline):
            return is_settled
        sandbox.observer.changed.clear()
        waits = [asyncio.create_task(event.wait()) for event in (sandbox.observer.changed, stop)]
        await asyncio.wait(waits, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return sandbox.is_settled


async def _live(sandbox: Sandbox, story: Scenario) -> None:
    say(*_hints(sandbox))
    first = _view(sandbox, await sandbox.status(), story.events)
    with Live(first, console=terminal(), auto_refresh=False) as live:
        while True:
            await asyncio.sleep(0.25)
            live.update(_view(sandbox, await sandbox.status(), story.events), refresh=True)


async def _lines(sandbox: Sandbox, story: Scenario, how: Show) -> None:
    """A line whenever the count of ready nodes changed, then the story, twice a second."""
    last, shown = "", 0
    if not how.exit_when_settled:
        for hint in _hints(sandbox):
            _say(how, hint)
    while True:
        ready = len(sandbox.observer.delays())
        line = f"{ready} of {len(sandbox.observer.nodes)} nodes ready"
        if line != last:
            _say(how, line)
            last = line
        for happened in story.events[shown:]:
            _say(how, happened)
        shown = len(story.events)
        await asyncio.sleep(0.5)


def _say(how: Show, line: str) -> None:
    """To standard output; beside JSON, to standard error."""
    if not how.live:
        say(line, err=how.as_json)


def _view(sandbox: Sandbox, status: Mapping[str, Any], lines: Sequence[str]) -> RenderableType:
    """Everything at once, top down: nodes, workers, budget, what happened."""
    status = printable_values(status)
    parts: list[RenderableType] = [_headline(sandbox), _nodes(sandbox), _workload(sandbox)]
    if "error" not in status:
        parts += [workers_table(status), budget_table(status)]
        parts += why_nothing_is_deleted(status)
    if lines:
        parts.append(Panel("\n".join(map(printable, lines)), title="Scenario"))
    return Group(*parts)


def _headline(sandbox: Sandbox) -> Text:
    delays = sandbox.observer.delays()
    text = Text("A kubelet registers its node with a taint: no Pod may run there yet.\n")
    text.append("The node workers ask the cloud about each machine, write what they learn,\n")
    text.append("and take the taint away. ")
    median = percentile(delays, 0.5)
    if median is not None:
        done = f"{len(delays)} of {len(sandbox.observer.nodes)} nodes are ready"
        text.append(f"{done}; half of them within {median * 1000:.0f} ms.", style="bold green")
    return text


def _nodes(sandbox: Sandbox) -> Table:
    columns = ("node", "machine", "provider ID", "internal IP", "type", "zone", "state")
    table = Table(*columns, title="Nodes", title_justify="left")
    seen = sandbox.observer.nodes
    worst_first = sorted(
        seen.items(), key=lambda item: (item[1].ready_at is not None, -item[1].seen_at)
    )
    for name, sighting in worst_first[:MAX_NODE_ROWS]:
        power = sandbox.power.get(name)
        cells = map(printable, (name, power or "", *_cells(sighting)))
        table.add_row(*cells, _state(sighting))
    if len(seen) > MAX_NODE_ROWS:
        table.add_row(f"… {len(seen) - MAX_NODE_ROWS} more")
    return table


def _workload(sandbox: Sandbox) -> Table:
    seen, count = sandbox.workload, len(sandbox.observer.nodes)
    rows = (
        (
            "Service web",
            "a load balancer",
            seen.service_address
            and f"{seen.service_address}, {len(seen.service_hosts)} of {count} nodes behind it",
        ),
        ("pod networks", "routes", seen.routed and f"{len(seen.routed)} of {count} nodes"),
        ("volume data", "its zone", seen.volume_zone),
    )
    table = Table("object", "needs", "has", title="Cloud resources", title_justify="left")
    for name, needs, has in rows:
        table.add_row(
            name, needs, Text(printable(has), "green") if has else Text("not yet", "yellow")
        )
    return table


def _cells(sighting: TimedNode) -> tuple[str, str, str, str]:
    node = sighting.node
    ips = [each.get("address", "") for each in node.addresses if each.get("type") == "InternalIP"]
    labels = node.labels
    return node.provider_id, "".join(ips[:1]), labels.get(TYPE, ""), labels.get(ZONE, "")


def _state(sighting: TimedNode) -> Text:
    missing = missing_fields(sighting.node)
    if missing:
        return Text(f"lacks {', '.join(missing)}", style="yellow")
    ready_after = sighting.seconds_to_ready or 0.0
    if not sighting.node.is_ready:
        is_off = any(taint.get("key") == SHUTDOWN_TAINT for taint in sighting.node.taints)
        why = "its machine is off: shutdown taint" if is_off else "no heartbeat of its kubelet"
        return Text(f"not ready: {why}", style="red")
    return Text(f"ready after {ready_after * 1000:.0f} ms", style="green")


def _hints(sandbox: Sandbox) -> Iterator[str]:
    """What somebody may do to this sandbox, with the paths that it has."""
    command, directory = sys.argv[0], sandbox.paths.directory
    here = "" if directory == Path(default_directory()) else f" --directory {directory}"
    yield "Try in another terminal (Ctrl-C here ends it all):"
    yield from (
        f"kubectl --kubeconfig {sandbox.paths.kubeconfig} get nodes -o wide",
        "kill -9 PID   # of a worker in its table; the others do not notice",
        f"{command} sandbox add 20{here}   # twenty more nodes",
        f"{command} sandbox machine stop vm-3{here}   # then: start vm-3",
        f"{command} sandbox machine terminate vm-4{here}   # its node, route and host go",
        f"{command} sandbox fault set throttle --times 5{here}   # the cloud pushes back",
        f"{command} status --runtime-dir {sandbox.paths.runtime}",
        f"less {directory}/supervisor.log",
    )
