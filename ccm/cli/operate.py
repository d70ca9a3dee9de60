"""The commands that operate a running supervisor, and how any command sends it a request."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ccm.bus.control import NotRunning, ask
from ccm.bus.paths import RuntimePaths
from ccm.cli.completion import workers
from ccm.cli.reporting import Group, example, fail, inherited, output_option, say, say_document
from ccm.directories import default_runtime_dir
from ccm.durations import format_duration
from ccm.errors import ExitCode
from ccm.model.conform import conform
from ccm.model.status import DeletionStatus, Status
from ccm.supervisor.deletion_state import why_blocked

RELOAD_TIMEOUT = 60.0  # seconds; the proof of credentials ends earlier
ANSWER_TIMEOUT = 10.0  # seconds
WAIT_LIMIT, WAIT_INTERVAL = 75.0, 0.1  # seconds that a command waits, and between two looks
WORKING = ("running", "standby", "skipped")
SCALE_TIMEOUT = 75.0  # seconds; the supervisor itself gives up earlier

runtime_dir_option = click.option(
    "--runtime-dir",
    metavar="DIR",
    default=inherited("runtime_dir", default_runtime_dir),
    help="Runtime directory of the supervisor.  [default: as for 'start']",
)


def answer_of(
    runtime_dir: str, command: str, timeout: float = ANSWER_TIMEOUT, **request: Any
) -> dict[str, Any]:
    """The supervisor's JSON answer to a command; ends this one with a clear line without it."""
    socket = RuntimePaths(Path(runtime_dir).absolute()).control
    try:
        answer = ask(socket, {"command": command, **request}, timeout)
    except NotRunning as error:
        fail([f"{error}; is it running, and with this --runtime-dir?"])
    if "error" in answer:
        fail([answer["error"]], ExitCode.USAGE)
    return answer


wait_option = click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Return only when it is done."
)


def wait_until(runtime_dir: str, is_done: Callable[[Status | None], bool], what: str) -> None:
    """Ask for the status until `is_done` (of None without an answer); fail after `WAIT_LIMIT`."""
    deadline = time.monotonic() + WAIT_LIMIT
    socket = RuntimePaths(Path(runtime_dir).absolute()).control
    while True:
        try:
            answer = ask(socket, {"command": "status"}, ANSWER_TIMEOUT)
            status = conform(Status, answer)
        except NotRunning:
            status = None
        if is_done(status):
            say(what)
            return
        if time.monotonic() > deadline:
            fail([f"not yet after {format_duration(WAIT_LIMIT)}, and it goes on: {what}"])
        time.sleep(WAIT_INTERVAL)


@click.command(epilog=example("ccm-supervisor stop"))
@wait_option
@runtime_dir_option
def stop(wait: bool, runtime_dir: str) -> None:
    """Stop in order: reconciles in flight finish, then the Lease is released."""
    say(answer_of(runtime_dir, "stop")["ok"])
    if wait:
        wait_until(runtime_dir, lambda status: status is None, "stopped")


@click.command(epilog=example("ccm-supervisor restart node-0"))
@click.argument("worker", shell_complete=workers)
@wait_option
@runtime_dir_option
def restart(worker: str, wait: bool, runtime_dir: str) -> None:
    """Have a new process take over the work of WORKER.

    Reconciles in flight finish; no other worker is affected.
    """
    before = _processes(conform(Status, answer_of(runtime_dir, "status")), worker)
    say(answer_of(runtime_dir, "restart", worker=worker)["ok"])

    def is_replaced(status: Status | None) -> bool:
        state, pid, successor = _processes(status, worker)
        return state in WORKING and successor is None and pid not in (None, before[1])

    if wait:
        wait_until(runtime_dir, is_replaced, f"{worker} runs in a new process")


def _processes(status: Status | None, name: str) -> tuple[str, int | None, int | None]:
    """State, process and successor of this worker; nothing for what there is not."""
    for worker in status["workers"] if status else ():
        if worker["name"] == name:
            return worker["state"], worker["pid"], worker["successor_pid"]
    return "", None, None


@click.command(epilog=example("ccm-supervisor scale node 3"))
@click.argument("controller", type=click.Choice(["node"]), expose_value=False)
@click.argument("count", type=int)
@runtime_dir_option
def scale(count: int, runtime_dir: str) -> None:
    """Shard the nodes among COUNT worker processes.

    Nothing is done twice or left out meanwhile.
    """
    say(answer_of(runtime_dir, "scale", SCALE_TIMEOUT, count=count)["ok"])


@click.command(epilog=example("ccm-supervisor reload"))
@runtime_dir_option
def reload(runtime_dir: str) -> None:
    """Read the cloud configuration and credentials again.

    One read of the cloud proves them; if they do not work, the old ones stay, and the command
    reports why. The verbosity is read again, too, where it is in the file of --config.
    """
    say(answer_of(runtime_dir, "reload", RELOAD_TIMEOUT)["ok"])


@click.command(epilog=example("ccm-supervisor log-level 4"))
@click.argument("verbosity", type=int)
@runtime_dir_option
def log_level(verbosity: int, runtime_dir: str) -> None:
    """Change the verbosity of the running processes.

    4 and more logs every decision, 0 what changed, -1 only what is wrong.
    """
    say(answer_of(runtime_dir, "log-level", verbosity=verbosity)["ok"])


@click.group(cls=Group, invoke_without_command=True, epilog=example("ccm-supervisor deletions"))
@output_option("text")
@runtime_dir_option
@click.pass_context
def deletions(context: click.Context, output: str, runtime_dir: str) -> None:
    """Show whether nodes may be deleted, and what prevents it."""
    if context.invoked_subcommand is None:
        answer = answer_of(runtime_dir, "deletions", action="show")
        if output == "text":
            say(*_deletions_lines(conform(DeletionStatus, answer)))
        else:
            say_document("deletions/v1", answer, output)


@deletions.command(epilog=example('ccm-supervisor deletions freeze --reason "audit"'))
@click.option("--reason", metavar="TEXT", default="", help="The reason, as the status shows it.")
@click.option("--by", metavar="USER", default="", help="Who freezes.  [default: you]")
@runtime_dir_option
def freeze(reason: str, by: str, runtime_dir: str) -> None:
    """Delete no node, by any replica and after any restart, until 'deletions allow'."""
    user = os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"
    answer = answer_of(runtime_dir, "deletions", action="freeze", reason=reason, by=by or user)
    say(answer["ok"])


@deletions.command(epilog=example("ccm-supervisor deletions allow"))
@runtime_dir_option
def allow(runtime_dir: str) -> None:
    """Lift a freeze, and a hold after many nodes vanished at once: they really are gone."""
    say(answer_of(runtime_dir, "deletions", action="allow")["ok"])


def _deletions_lines(status: DeletionStatus) -> Iterator[str]:
    if standby := status.get("standby"):
        yield f"this replica deletes nothing ({standby}); below is what it knows itself"
    yield from [*why_blocked(status)] or ["not frozen" if standby else "allowed"]
    counts, budget = status["counts"], status["budget"]
    window = format_duration(budget["window_seconds"])
    yield f"budget: {budget['left']} of {budget['limit']} left in {window}"
    spent = (f"{item['node']} ({item['times']}×)" for item in budget["spent"])
    yield from ([f"spent on: {', '.join(spent)}"] if budget["spent"] else [])
    yield f"since the start: {counts['proposed']} proposed, {counts['permitted']} permitted"
    width = max((len(item["node"]) for item in status["candidates"]), default=0)
    for item in status["candidates"]:
        wait = item.get("seconds")
        when = f", not before {format_duration(wait)} from now" if wait else ""
        yield f"  {item['node']:{width}}  {item['verdict']}: {item['reason']}{when}"
    if status["more_candidates"]:
        yield f"  and {status['more_candidates']} more"
