"""What a running sandbox shows on a terminal, whatever its size: nodes, story, and what to try."""

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from ccm.cli.fitting import COMMENT, WIDE, Cell, Column, Fitted, Rows
from ccm.cli.status_view import budget_table, problems_view, workers_table
from ccm.model.status import Status
from ccm.printable import printable, printable_values
from ccm.sandbox.cloud.records import Power
from ccm.sandbox.cluster import Sandbox
from ccm.sandbox.components import SandboxEndpoints, SandboxPaths
from ccm.sandbox.kubelets import in_order
from ccm.sandbox.observer import TYPE, ZONE, TimedNode, missing_fields, percentile
from ccm.sandbox.scenario import DISTURBED

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
    parts.append(Rows("Story, newest first", [Column("")], newest_first, most=MAX_STORY))
    if not tips:
        parts.append(Text(ways_in(sandbox.endpoints, sandbox.paths)))
    title, *lines = tips or hints(sandbox.endpoints, sandbox.paths, sandbox.workload.power)
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
    return Rows("Nodes", NODE_COLUMNS, rows)


def _urgency(seen: TimedNode) -> tuple[bool, float]:
    is_well = seen.ready_at is not None and seen.node.is_ready
    return is_well, -(seen.ready_at or seen.seen_at)


def _workload(sandbox: Sandbox) -> Rows:
    seen, nodes = sandbox.workload, sandbox.observer.nodes.keys()
    count, routed = len(nodes), seen.routed & nodes  # what goes is not counted as there
    backends = f"{len(seen.service_backends & nodes)} of {count} nodes"
    has = {
        ("Service web", "a load balancer"): seen.service_address
        and f"{seen.service_address}, {backends}",
        ("pod networks", "routes"): f"{len(routed)} of {count} nodes" if routed else "",
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
        why = "off, shutdown taint" if is_off else "kubelet is silent"
        return Text(f"not ready: {why}", style="red")
    return Text(f"ready after {(seen.seconds_to_ready or 0.0) * 1000:.0f} ms", style="green")


def hints(
    endpoints: SandboxEndpoints, paths: SandboxPaths, power: Mapping[str, Power]
) -> Iterator[str]:
    """What someone may do to this sandbox, with machines that it has; a title first."""
    yield "Try it there"
    yield f"ccm-supervisor sandbox add 20{COMMENT}twenty more nodes"
    off, gone = _machines_to_try(power)
    if gone:
        yield f"ccm-supervisor sandbox machine terminate {gone}{COMMENT}it is gone for good"
    yield f"kill -9 PID{COMMENT}of a worker; the others do not notice"
    yield f"kubectl expose service web --name=my --type=LoadBalancer{COMMENT}of your own"
    if off:
        yield f"ccm-supervisor sandbox machine stop {off}{COMMENT}then: start {off}"
    yield from (
        f"ccm-supervisor sandbox fault set throttle --times 5{COMMENT}then: sandbox add 3",
        f"ccm-supervisor sandbox fault set error{COMMENT}then: sandbox add 1, and fault clear",
        f"ccm-supervisor restart node-0{COMMENT}a new process takes over",
        f"ccm-supervisor status --watch{COMMENT}what an operator sees",
        f"ccm-supervisor explain service default/web{COMMENT}why it is as it is",
        f"kubectl get nodes -o wide{COMMENT}and get services, get events",
        f"curl -k {endpoints.page_url}metrics",
        f"less {paths.log('supervisor')}",
    )


def _machines_to_try(power: Mapping[str, Power]) -> tuple[str, str]:
    """One to stop and one to end, rather not those that the scenario takes; empty without any."""
    left = in_order(name for name, state in power.items() if state is not Power.TERMINATED)
    taken = {f"vm-{number}" for number in range(1, DISTURBED + 1)}
    spare = [name for name in left if name not in taken] or left
    return (spare[0], spare[min(1, len(spare) - 1)]) if spare else ("", "")


def ways_in(endpoints: SandboxEndpoints, paths: SandboxPaths) -> str:
    """The page, and what makes another terminal one of this sandbox."""
    return f"Page {endpoints.page_url}   In another terminal: . {paths.environment}"
