"""`ccm-supervisor sandbox`: a whole small cluster on this machine, and commands to disturb it."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import click

from ccm.cli.reporting import FORMATS, Group, example, inherited, output_option, say, say_document
from ccm.errors import ExitCode
from ccm.sandbox.components import default_directory, find_sandbox

T = TypeVar("T")

FAULT = example("ccm-supervisor sandbox fault set throttle --times 5")

directory_option = click.option(
    "--directory",
    metavar="DIR",
    default=inherited("directory", default_directory),
    help="Where the sandbox keeps its files.  [default: one directory per user]",
)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; Ctrl-C is an orderly end."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.OK) from None


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog=example(
        "ccm-supervisor sandbox",
        "ccm-supervisor sandbox --nodes 200 --exit-when-settled -o json",
    ),
)
@click.option(
    "--nodes", type=click.IntRange(0), default=6, show_default=True, help="Nodes that register."
)
@click.option(
    "--node-workers", type=click.IntRange(1), default=2, show_default=True, help="Node workers."
)
@click.option("--exit-when-settled", is_flag=True, help="End once every node is ready.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for --exit-when-settled.")
@output_option("table")
@click.option(
    "--story/--no-story",
    default=None,
    help="Stop, start and end machines once all is ready.  [default: unless it exits when settled]",
)
@directory_option
@click.pass_context
def sandbox(
    ctx: click.Context, /, directory: str, nodes: int, node_workers: int, output: str, **ending: Any
) -> None:
    """Start a cluster, a cloud and the supervisor here, to look and try.

    Watch tainted nodes become ready. Nothing outside the sandbox's directory is touched. The other
    commands of this group change a sandbox that runs in another terminal.
    """
    if ctx.invoked_subcommand is not None:
        return
    from ccm.cli.sandbox_show import Show, show
    from ccm.sandbox.cluster import SandboxOptions

    is_live = output == "table" and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    options = SandboxOptions(directory, nodes, node_workers, 0.4 if is_live else 0.0)
    sys.exit(run(show(options, Show(is_live, output, **ending))))


@sandbox.command("hints", epilog=example("ccm-supervisor sandbox hints"))
@directory_option
def show_hints(directory: str) -> None:
    """Show where the page of the running sandbox is, and what to try."""
    from ccm.cli.sandbox_view import hints, ways_in

    paths, endpoints = find_sandbox(directory)
    power = {item.name: item.power for item in run(_with_cloud(directory, lambda c: c.machines()))}
    say(ways_in(endpoints, paths), *hints(endpoints, paths, power))


@sandbox.group(epilog=example("ccm-supervisor sandbox machine list"))
def machine() -> None:
    """Look at the cloud's machines and change them."""


def _on_machine(name: str, text: str, done: str) -> None:
    @machine.command(name, help=text, epilog=example(f"ccm-supervisor sandbox machine {name} vm-3"))
    @click.argument("machine_name", metavar="MACHINE")
    @directory_option
    def command(machine_name: str, directory: str) -> None:
        run(_with_cloud(directory, lambda cloud: getattr(cloud, name)(machine_name)))
        say(f"{machine_name} {done}")


_on_machine("stop", "Switch a machine off; its kubelet falls silent.", "is being stopped")
_on_machine("start", "Switch a machine on again.", "is being started")
_on_machine("terminate", "End a machine for good.", "is terminated")


@machine.command("list", epilog=example("ccm-supervisor sandbox machine list -o json"))
@output_option("text")
@directory_option
def list_machines(output: str, directory: str) -> None:
    """List the machines."""
    machines = run(_with_cloud(directory, lambda cloud: cloud.machines()))
    if output != "text":
        say_document("sandbox-machines/v1", {"machines": machines}, output)
        return
    for item in machines:
        addresses = ", ".join(entry.address for entry in item.addresses)
        say(f"{item.name:<12} {item.id:<12} {item.power:<11} {item.zone}  {addresses}")


@sandbox.command(epilog=example("ccm-supervisor sandbox add 20"))
@click.argument("count", type=click.IntRange(1, 5000))
@directory_option
def add(count: int, directory: str) -> None:
    """Add COUNT machines whose kubelets register at once."""
    names = run(_add(directory, count))
    say(f"registered {names[0]}" + (f" to {names[-1]}" if names[1:] else ""))


async def _add(directory: str, count: int) -> list[str]:
    from ccm.kube import config
    from ccm.kube.client import Kube
    from ccm.sandbox.cloud.client import CloudAdmin
    from ccm.sandbox.kubelets import new_machines, register

    paths, endpoints = find_sandbox(directory)
    kube = Kube(await config.load(str(paths.kubeconfig)), "sandbox-kubelets")
    try:
        async with CloudAdmin(endpoints.cloud_url) as cloud:
            numbers = [int(m.name.rpartition("-")[2]) for m in await cloud.machines()]
            machines = await cloud.add(new_machines(max(numbers, default=0) + 1, count))
        names = [item.name for item in machines]
        await register(kube, names)
    finally:
        await kube.close()
    return names


@sandbox.group(epilog=FAULT)
def fault() -> None:
    """Let the cloud fail in some way."""


@fault.command("set", epilog=FAULT)
@click.argument("kind")
@click.option(
    "--operation", default="*", show_default=True, help="Calls it applies to, such as 'Create*'."
)
@click.option("--times", type=int, help="How often; without it, until cleared.")
@directory_option
def set_fault(kind: str, operation: str, times: int | None, directory: str) -> None:
    """Put a fault in force.

    KIND is error, denied, throttle, timeout, reset, garbage, slow, stale, empty, partial or absent.
    """
    from ccm.sandbox.cloud.codec import CloudApiError, decode
    from ccm.sandbox.cloud.faults import CloudFault

    body: dict[str, Any] = {"kind": kind, "operation": operation}
    if times is not None:
        body["remaining"] = times
    try:
        new = decode(CloudFault, body)
    except CloudApiError as error:
        raise click.UsageError(str(error)) from error
    say(f"fault {run(_with_cloud(directory, lambda cloud: cloud.set_fault(new))).id} is set")


@fault.command("clear", epilog=example("ccm-supervisor sandbox fault clear"))
@directory_option
def clear_faults(directory: str) -> None:
    """Clear all faults."""
    run(_with_cloud(directory, lambda cloud: cloud.clear_faults()))
    say("no fault is set")


@sandbox.command(epilog=example("ccm-supervisor sandbox counters -o yaml"))
@click.option("-o", "--output", type=click.Choice(FORMATS), default="json", show_default=True)
@directory_option
def counters(output: str, directory: str) -> None:
    """Show how often the cloud was called.

    By operation, caller and status.
    """
    counted = run(_with_cloud(directory, lambda cloud: cloud.counters()))
    say_document("sandbox-counters/v1", counted, output)


async def _with_cloud(directory: str, act: Callable[[Any], Awaitable[T]]) -> T:
    from ccm.sandbox.cloud.client import CloudAdmin

    _, state = find_sandbox(directory)
    async with CloudAdmin(state.cloud_url) as cloud:
        return await act(cloud)
