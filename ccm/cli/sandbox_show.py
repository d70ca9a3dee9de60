"""Running a sandbox: a live table on a terminal, progress lines or JSON otherwise."""

import asyncio
import signal
import time
from dataclasses import dataclass

import orjson

from ccm.cli.reporting import FORMATS, live_view, say, say_document
from ccm.cli.sandbox_view import hints, view, ways_in
from ccm.errors import ExitCode
from ccm.sandbox.cluster import Sandbox, SandboxOptions
from ccm.sandbox.scenario import Scenario
from ccm.sandbox.story import LOOK_INTERVAL, Story

HINTS_TURN = 8  # seconds for which hints stand, where the terminal has no room for all


@dataclass(frozen=True, slots=True)
class Show:
    """How to show it, and when to end (`timeout` in seconds); `story` None: unless it ends."""

    live: bool
    output: str
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
        story = Story(sandbox)
        show_all = _live(sandbox, story) if how.live else _lines(sandbox, story, how)
        background = [adding, *map(asyncio.create_task, (show_all, story.run()))]
        tells_story = not how.exit_when_settled if how.story is None else how.story
        background += [asyncio.create_task(Scenario(sandbox, story).run())] if tells_story else []
        try:
            is_settled = await _until_done(sandbox, how, stop)
            await adding if is_settled else adding.cancel()
            summary = await sandbox.summary(is_settled)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        if how.output in FORMATS:
            say_document("sandbox/v1", summary, how.output)
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
    start = time.monotonic()
    with live_view(view(sandbox, story.status, story.events)) as live:
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            turn = int(time.monotonic() - start) // HINTS_TURN
            live.update(view(sandbox, story.status, story.events, turn=turn), refresh=True)


async def _lines(sandbox: Sandbox, story: Story, how: Show) -> None:
    """A line whenever the count of ready nodes changed, then the story, twice a second."""
    last, shown = "", 0
    if not how.exit_when_settled:
        await sandbox.look()  # for the machines that the hints name
        _say(how, ways_in(sandbox.endpoints, sandbox.paths))
        for hint in hints(sandbox.endpoints, sandbox.paths, sandbox.workload.power):
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
    """To standard output; beside a document, to standard error."""
    if not how.live:
        say(line, err=how.output in FORMATS)
