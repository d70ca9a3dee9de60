"""Running a sandbox for somebody: a live table for a person, progress lines or JSON otherwise."""

import asyncio
import signal
import sys
from dataclasses import dataclass

import click
import orjson

from ccm.errors import ExitCode
from ccm.sandbox.cluster import Sandbox, SandboxOptions
from ccm.sandbox.story import Story


@dataclass(frozen=True, slots=True)
class Show:
    """How to show it, and when to end."""

    live: bool
    as_json: bool
    exit_when_settled: bool
    timeout: float
    story: bool


async def show(options: SandboxOptions, how: Show) -> int:
    """Run until settled, the timeout, or a signal; returns the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _say(how, f"starting an API server, a cloud and the supervisor in {options.directory}")
    async with Sandbox(options) as sandbox:
        adding = asyncio.create_task(sandbox.add_nodes())
        story = Story(sandbox)
        show_all = _live(sandbox, story) if how.live else _lines(sandbox, story, how)
        background = [adding, asyncio.create_task(show_all)]
        background += [asyncio.create_task(story.run())] if how.story else []
        try:
            is_settled = await _until_done(sandbox, how, stop)
            await adding if is_settled else adding.cancel()
            summary = await sandbox.summary(is_settled)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        if how.as_json:
            click.echo(orjson.dumps(summary, option=orjson.OPT_INDENT_2))
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


async def _live(sandbox: Sandbox, story: Story) -> None:
    from rich.live import Live

    from ccm.cli.sandbox_view import sandbox_view

    with Live(
        sandbox_view(sandbox, await sandbox.status(), story.lines), auto_refresh=False
    ) as live:
        while True:
            await asyncio.sleep(0.25)
            live.update(sandbox_view(sandbox, await sandbox.status(), story.lines), refresh=True)


async def _lines(sandbox: Sandbox, story: Story, how: Show) -> None:
    """A line whenever the count of ready nodes has moved, then the story, twice a second."""
    last, told = "", 0
    while True:
        ready = len(sandbox.observer.delays())
        line = f"{ready} of {len(sandbox.observer.sightings)} nodes ready"
        if line != last:
            _say(how, line)
            last = line
        for happened in story.lines[told:]:
            _say(how, str(happened))
        told = len(story.lines)
        await asyncio.sleep(0.5)


def _say(how: Show, line: str) -> None:
    """To people on standard output; beside JSON, on standard error."""
    if not how.live:
        print(line, file=sys.stderr if how.as_json else sys.stdout, flush=True)
