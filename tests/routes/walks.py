"""Lets objects appear in a sandbox, one by one, and reads which files of the product ran for them.

A file counts when Python code of it ran between the two points of a walk in every one of the
repetitions, in the supervisor or in the worker that the walk ends in: what ran only in some of them
merely happened meanwhile. A file whose functions waited all the time does not count, nor does one
of values whose methods Python itself has made. The sandbox's servers are not recorded.
"""

import asyncio
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from ccm.sandbox.cluster import Sandbox, SandboxOptions
from ccm.sandbox.kubelets import new_machines, register
from ccm.sandbox.workload import SERVICE
from tests.routes.recorder import ROOT, VARIABLE
from tests.routes.tables import WALKS, Point, Walk

REPETITIONS = 3
IDLE = 1.0  # seconds without work before an object comes: a system at rest is measured
TIMEOUT = 30.0  # seconds in which an object has to be done
SUPERVISOR = "MainProcess"
NAMESPACE = "/api/v1/namespaces/default"
LAST = {"Node": "Synced", "Service": "EnsuredLoadBalancer"}  # the Event that tells of its end

Files = dict[str, list[str]]  # in the order in which they first ran, each with its processes


class Line(NamedTuple):
    """What the recorder wrote."""

    at: float
    process: str
    event: str
    file: str
    function: str
    words: str


class Followed(NamedTuple):
    """An object that was made at the monotonic time `at`."""

    kind: str
    name: str
    at: float


def measure(directory: Path) -> dict[Walk, Files]:
    """The files of every walk."""
    records, site = directory / "records", directory / "site"
    records.mkdir()
    site.mkdir()
    # Each interpreter imports this by itself as it starts, so the workers do, too.
    code = "from tests.routes.recorder import record\n\nrecord()\n"
    (site / "sitecustomize.py").write_text(code)
    path = os.pathsep.join(filter(None, (str(site), str(ROOT), os.environ.get("PYTHONPATH"))))
    with patch.dict(os.environ, {"PYTHONPATH": path, VARIABLE: str(records)}):
        followed = asyncio.run(_follow_all(directory / "sandbox"))
    lines = sorted(line for file in records.iterdir() for line in _read(file))
    return {walk: _files(lines, walk, followed) for walk in WALKS}


async def _follow_all(directory: Path) -> list[Followed]:
    """Make objects one after the other; the first of each kind warms the system up."""
    async with Sandbox(SandboxOptions(str(directory), nodes=0, node_workers=1)) as sandbox:
        made = [
            await _follow(sandbox, kind, number)
            for kind in ("Node", "Service")
            for number in range(REPETITIONS + 1)
        ]
    return [item for item in made if not item.name.endswith("-0")]


async def _follow(sandbox: Sandbox, kind: str, number: int) -> Followed:
    """Make an object in a system at rest, and wait until everything is done that comes of it."""
    await asyncio.sleep(IDLE)
    at, name = time.monotonic(), f"vm-{number}"
    if kind == "Node":
        await sandbox.cloud.add(new_machines(number, 1))
        await register(sandbox.kube, [name])
    else:
        name = f"web-{number}"
        body = {**SERVICE, "metadata": {"name": name, "namespace": "default"}}
        await sandbox.kube.post(f"{NAMESPACE}/services", body)
    async with asyncio.timeout(TIMEOUT):
        while LAST[kind] not in await _told(sandbox, name):  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.05)
    return Followed(kind, name, at)


async def _told(sandbox: Sandbox, name: str) -> set[str]:
    """The reasons of the Events about an object."""
    events = (await sandbox.kube.get(f"{NAMESPACE}/events"))["items"]
    return {event["reason"] for event in events if event["involvedObject"]["name"] == name}


def _read(file: Path) -> list[Line]:
    return [Line(*json.loads(line)) for line in file.read_text().splitlines()]


def _files(lines: list[Line], walk: Walk, followed: Iterable[Followed]) -> Files:
    """What the repetitions have in common, in the order of the first."""
    first, *others = [_once(lines, walk, item) for item in followed if item.kind == walk.kind]
    files: Files = {}
    for file, process in first:
        if all((file, process) in other for other in others):
            files.setdefault(file, []).append(process)
    return files


def _once(lines: list[Line], walk: Walk, item: Followed) -> dict[tuple[str, str], None]:
    """File and process of what ran for one object, in order."""
    start = _find(lines, walk.start, item.name, item.at)
    end = _find(lines, walk.end, item.name, start.at)
    ran = (line for line in lines if start.at <= line.at <= end.at)
    processes = (SUPERVISOR, end.process)
    return {(line.file, line.process): None for line in ran if line.process in processes}


def _find(lines: list[Line], point: Point, name: str, since: float) -> Line:
    """The first line since then that is this point on the way of the object."""
    words = [word.format(name=name) for word in point.words]
    for line in lines:
        is_there = line[2:5] == (point.event, point.file, point.function)
        if is_there and line.at >= since and all(word in line.words for word in words):
            return line
    raise AssertionError(f"{name} did not pass {point}")
