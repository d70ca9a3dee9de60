"""The sandbox's live table: what each node still lacks, who works on it, and what to try next."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ccm.cli.tables import budget_table, deletions_line, workers_table
from ccm.model.node import SHUTDOWN_TAINT
from ccm.sandbox.cluster import Sandbox
from ccm.sandbox.observer import TYPE, ZONE, Sighting, lacks, percentile
from ccm.sandbox.place import default_directory
from ccm.sandbox.story import Line

ROWS = 14


def sandbox_view(
    sandbox: Sandbox, status: Mapping[str, Any], lines: Sequence[Line]
) -> RenderableType:
    """Everything at once, top down: nodes, workers, budget, what happened, hints."""
    parts: list[RenderableType] = [_headline(sandbox), _nodes(sandbox), _workload(sandbox)]
    if "error" not in status:
        parts += [workers_table(status), budget_table(status)]
        if stopped := deletions_line(status):
            parts.append(stopped)
    if lines:
        parts.append(Panel("\n".join(map(str, lines)), title="What happened"))
    parts.append(_hints(sandbox, status))
    return Group(*parts)


def _headline(sandbox: Sandbox) -> Text:
    delays = sandbox.observer.delays()
    text = Text("A kubelet registers its node with a taint: no Pod may run there yet.\n")
    text.append("The node workers ask the cloud about each machine, write what they learn,\n")
    text.append("and take the taint away. ")
    median = percentile(delays, 0.5)
    if median is not None:
        done = f"{len(delays)} of {len(sandbox.observer.sightings)} nodes are ready"
        text.append(f"{done}; half of them within {median * 1000:.0f} ms.", style="bold green")
    return text


def _nodes(sandbox: Sandbox) -> Table:
    table = Table(title="Nodes", title_justify="left")
    for column in ("node", "machine", "provider ID", "internal IP", "type", "zone", "state"):
        table.add_column(column)
    seen = sandbox.observer.sightings
    worst_first = sorted(
        seen.items(), key=lambda item: (item[1].ready_at is not None, -item[1].seen_at)
    )
    for name, sighting in worst_first[:ROWS]:
        power = sandbox.power.get(name)
        table.add_row(name, str(power or ""), *_facts(sighting), _state(sighting))
    if len(seen) > ROWS:
        table.add_row(f"… {len(seen) - ROWS} more")
    return table


def _workload(sandbox: Sandbox) -> Table:
    sights, count = sandbox.sights, len(sandbox.observer.sightings)
    rows = (
        (
            "Service web",
            "a load balancer",
            sights.service_address
            and f"{sights.service_address}, {len(sights.service_hosts)} of {count} nodes behind it",
        ),
        ("pod networks", "routes", sights.routed and f"{len(sights.routed)} of {count} nodes"),
        ("volume data", "its zone", sights.volume_zone),
    )
    table = Table(title="What the cluster asked the cloud for", title_justify="left")
    for column in ("who", "wants", "has"):
        table.add_column(column)
    for who, wants, has in rows:
        table.add_row(who, wants, Text(str(has), "green") if has else Text("not yet", "yellow"))
    return table


def _facts(sighting: Sighting) -> tuple[str, str, str, str]:
    node = sighting.node
    ips = (
        entry.get("address", "") for entry in node.addresses if entry.get("type") == "InternalIP"
    )
    return node.provider_id, next(ips, ""), node.labels.get(TYPE, ""), node.labels.get(ZONE, "")


def _state(sighting: Sighting) -> Text:
    missing = lacks(sighting.node)
    if missing:
        return Text(f"lacks {', '.join(missing)}", style="yellow")
    ready_after = sighting.seconds_to_ready or 0.0
    if not sighting.node.is_ready:
        is_off = any(taint.get("key") == SHUTDOWN_TAINT for taint in sighting.node.taints)
        why = (
            "its machine is off, so it has the shutdown taint"
            if is_off
            else "its kubelet is silent"
        )
        return Text(f"not ready: {why}", style="red")
    return Text(f"ready after {ready_after * 1000:.0f} ms", style="green")


def _hints(sandbox: Sandbox, status: Mapping[str, Any]) -> Panel:
    command, directory = sys.argv[0], sandbox.place.directory
    pids = [str(worker["pid"]) for worker in status.get("workers", []) if worker["pid"]]
    is_default = directory == Path(default_directory())
    here = "" if is_default else f" --directory {directory}"
    lines = [
        f"kubectl --kubeconfig {sandbox.place.kubeconfig} get nodes -o wide",
        f"kill -9 {pids[0] if pids else 'PID'}   # a worker dies; the others do not notice",
        f"{command} sandbox add 20{here}   # twenty more nodes",
        f"{command} sandbox machine stop vm-3{here}   # then: start vm-3",
        f"{command} sandbox machine terminate vm-4{here}   # the node, its route and host go",
        f"{command} sandbox fault set throttle --times 5{here}   # the cloud pushes back",
        f"{command} status --runtime-dir {sandbox.place.runtime}",
        f"less {directory}/supervisor.log",
    ]
    return Panel("\n".join(lines), title="Try in another terminal (Ctrl-C here ends it all)")
