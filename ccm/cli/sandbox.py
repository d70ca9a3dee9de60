"""`ccm-supervisor sandbox`: a whole small cluster on this machine, and commands to disturb it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import click

from ccm.cli.reporting import say, say_json
from ccm.errors import ExitCode
from ccm.sandbox.components import default_directory, find_sandbox

T = TypeVar("T")

directory_option = click.option(
    "--directory",
    metavar="DIR",
    default=default_directory,
    help="Where the sandbox keeps its files.  [default: one directory per user]",
)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; Ctrl-C is an orderly end."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.OK) from None


@click.group(invoke_without_command=True)
@click.option(
    "--nodes", type=click.IntRange(0), default=6, show_default=True, help="Nodes that register."
)
@click.option(
    "--node-workers", type=click.IntRange(1), default=2, show_default=True, help="Node workers."
)
@click.option("--exit-when-settled", is_flag=True, help="End once every node is ready.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for --exit-when-settled.")
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table")
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
    """Start an API server, a cloud and the supervisor here, and watch tainted nodes become ready.

    Nothing outside the sandbox's directory is touched. The other commands of this group change a
    sandbox that runs in another terminal.
    """
    if ctx.invoked_subcommand is not None:
        return
    from ccm.cli.sandbox_show import Show, show
    from ccm.sandbox.cluster import SandboxOptions

    is_live = output == "table" and sys.stdout.isatty()
    options = SandboxOptions(directory, nodes, node_workers, 0.4 if is_live else 0.0)
    sys.exit(run(show(options, Show(is_live, output == "json", **ending))))


@sandbox.group()
def machine() -> None:
    """Look at the cloud's machines and change them."""


def _on_machine(name: str, text: str, done: str) -> None:
    @machine.command(name, help=text)
    @click.argument("machine_name", metavar="MACHINE")
    @directory_option
    def command(machine_name: str, directory: str) -> None:
        run(_with_cloud(directory, lambda cloud: getattr(cloud, name)(machine_name)))
        say(f"{machine_name} {done}")


_on_machine("stop", "Switch a machine off; its kubelet falls silent.", "is being stopped")
_on_machine("start", "Switch a machine on again.", "is being started")
_on_machine("terminate", "End a machine for good.", "is terminated")


@machine.command("list")
@directory_option
def list_machines(directory: str) -> None:
    """List the machines."""
    for item in run(_with_cloud(directory, lambda cloud: cloud.machines())):
        addresses = ", ".join(entry.address for entry in item.addresses)
        say(f"{item.name:<12} {item.id:<12} {item.power:<11} {item.zone}  {addresses}")


@sandbox.command()
@click.argument("count", type=click.IntRange(1, 5000))
@directory_option
def add(count: int, directory: str) -> None:
    """Add COUNT machines whose kubelets register at once."""
    names = run(_add(directory, count))
    say(f"registered {names[0]} to {names[-1]}")


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


@sandbox.group()
def fault() -> None:
    """Let the cloud fail in some way."""


@fault.command("set")
@click.argument("kind")
@click.option("--operation", default="*", show_default=True, help="Calls it applies to.")
@click.option("--times", type=int, help="How often; without it, until cleared.")
@directory_option
def set_fault(kind: str, operation: str, times: int | None, directory: str) -> None:
    """Put a fault in force: error, timeout, denied, throttle, reset, garbage, partial, stale, …"""
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


@fault.command("clear")
@directory_option
def clear_faults(directory: str) -> None:
    """Clear all faults."""
    run(_with_cloud(directory, lambda cloud: cloud.clear_faults()))
    say("no faults any more")


@sandbox.command()
@directory_option
def counters(directory: str) -> None:
    """Show how often the cloud was called, by operation, caller and status."""
    say_json(run(_with_cloud(directory, lambda cloud: cloud.counters())))


async def _with_cloud(directory: str, act: Callable[[Any], Awaitable[T]]) -> T:
    from ccm.sandbox.cloud.client import CloudAdmin

    _, state = find_sandbox(directory)
    async with CloudAdmin(state.cloud_url) as cloud:
        return await act(cloud)
