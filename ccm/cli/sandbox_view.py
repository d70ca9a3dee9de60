"""What a running sandbox shows on a terminal, whatever its size: nodes, story, and what to try."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text

from ccm.cli.fitting import COMMENT, WIDE, Cell, Column, Fitted, Rows
from ccm.cli.status_view import budget_table, problems_view, workers_table
from ccm.model.status import Status
from ccm.printable import printable, printable_values
from ccm.sandbox.cluster import Sandbox
from ccm.sandbox.components import default_directory
from ccm.sandbox.observer import TYPE, ZONE, TimedNode, missing_fields, percentile

MAX_STORY = 10  # lines
NODE_COLUMNS = (
    Column("node"),
    Column("machine", from_width=100),
    Column("provider ID", from_width=100),
    Column("internal IP", from_width=WIDE),
    Column("type", from_width=120),
    Column("zone", from_width=WIDE),
    Column("state"),
)


def view(
    sandbox: Sandbox,
    answer: Status | None,
    story: Sequence[str],
    tips: Sequence[str] = (),
    turn: int = 0,
) -> Fitted:
    """Everything at once, top down: nodes, workers, budget, what happened, what to try.

    `tips` are a title and lines in place of the `hints` for a sandbox. Where not all of them fit,
    `turn` counts which ones come.
    """
    parts: list[Text | Rows] = [_headline(sandbox), _nodes(sandbox), _workload(sandbox)]
    if answer:
        status: Status = printable_values(answer)
        parts += [workers_table(status), *problems_view(status), budget_table(status)]
    newest_first = [(printable(line),) for line in reversed(story)]
    parts.append(Rows("Scenario, newest first", [Column("")], newest_first, most=MAX_STORY))
    title, *lines = tips or hints(sandbox)
    parts.append(Rows(title, [Column("")], [(f"  {line}",) for line in lines], turn=turn))
    return Fitted(parts)


def _headline(sandbox: Sandbox) -> Text:
    delays = sandbox.observer.delays()
    median = percentile(delays, 0.5)
    if median is None:
        return Text("Kubelets register nodes with a taint; node workers look them up in the cloud.")
    done = f"{len(delays)} of {len(sandbox.observer.nodes)} nodes were made ready"
    return Text(
        f"{done}, half of them within {median * 1000:.0f} ms. Ctrl-C ends it.", "bold green"
    )


def _nodes(sandbox: Sandbox) -> Rows:
    """Those that are not as they should be first, then what changed last."""
    seen = sorted(sandbox.observer.nodes.items(), key=lambda item: _urgency(item[1]))
    rows: list[list[Cell]] = [
        [*map(printable, (name, sandbox.power.get(name) or "", *_cells(node))), _state(node)]
        for name, node in seen
    ]
    return Rows("Nodes", NODE_COLUMNS, rows, least=4)


def _urgency(seen: TimedNode) -> tuple[bool, float]:
    is_well = seen.ready_at is not None and seen.node.is_ready
    return is_well, -(seen.ready_at or seen.seen_at)


def _workload(sandbox: Sandbox) -> Rows:
    seen, count = sandbox.workload, len(sandbox.observer.nodes)
    backends = f"{seen.service_address}, {len(seen.service_backends)} of {count} nodes behind it"
    has = {
        ("Service web", "a load balancer"): backends if seen.service_address else "",
        ("pod networks", "routes"): seen.routed and f"{len(seen.routed)} of {count} nodes",
        ("volume data", "its zone"): seen.volume_zone,
    }
    rows = [
        (name, needs, Text(printable(what), "green") if what else Text("not yet", "yellow"))
        for (name, needs), what in has.items()
    ]
    brief = "; ".join(f"{name}: {cell}" for name, _, cell in rows)
    columns = [Column("object"), Column("needs", from_width=WIDE), Column("has")]
    return Rows("Cloud resources", columns, rows, brief=brief)


def _cells(seen: TimedNode) -> tuple[str, str, str, str]:
    node = seen.node
    ips = [each.get("address", "") for each in node.addresses if each.get("type") == "InternalIP"]
    labels = node.labels
    return node.provider_id, "".join(ips[:1]), labels.get(TYPE, ""), labels.get(ZONE, "")


def _state(seen: TimedNode) -> Text:
    missing = missing_fields(seen.node)
    if missing:
        return Text(f"lacks {', '.join(missing)}", style="yellow")
    if not seen.node.is_ready:
        is_off = seen.node.is_shut_down
        why = "its machine is off: shutdown taint" if is_off else "no heartbeat of its kubelet"
        return Text(f"not ready: {why}", style="red")
    return Text(f"ready after {(seen.seconds_to_ready or 0.0) * 1000:.0f} ms", style="green")


def hints(sandbox: Sandbox) -> Iterator[str]:
    """What someone may do to this sandbox, with the paths that it has; a title first."""
    called, directory = Path(sys.argv[0]), sandbox.paths.directory
    command = called.name if shutil.which(called.name) else called
    here = "" if directory == Path(default_directory()) else f" --directory {directory}"
    yield "Try in another terminal"
    yield from (
        f"{command} sandbox add 20{here}{COMMENT}twenty more nodes",
        f"{command} sandbox machine terminate vm-4{here}{COMMENT}its node, route and host go",
        f"kill -9 PID{COMMENT}of a worker; the others do not notice",
        f"{command} sandbox fault set throttle --times 5{here}{COMMENT}the cloud pushes back",
        f"{command} sandbox machine stop vm-3{here}{COMMENT}then: start vm-3",
        f"{command} status --runtime-dir {sandbox.paths.runtime}",
        f"kubectl --kubeconfig {sandbox.paths.kubeconfig} get nodes -o wide",
        f"less {directory}/supervisor.log",
    )
