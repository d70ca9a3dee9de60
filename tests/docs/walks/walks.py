"""Creates objects in a sandbox, one by one, and reads which files of the product ran for them.

A file counts when Python code of it ran between the two points of a walk in every repetition, in
the supervisor or in the worker that the walk ends in. The supervisor takes part in a walk that
begins in a worker from the first message that it gets: what it finishes before that is of an
earlier walk. A file whose functions waited all the time does not count, nor does one of values
whose methods Python itself has made.
"""

import asyncio
import json
import math
import os
import time
from pathlib import Path
from unittest.mock import patch

from ccm.sandbox import components
from ccm.sandbox.cluster import Sandbox, SandboxOptions
from ccm.sandbox.kubelets import NODES, new_machines, registration
from ccm.sandbox.workload import SERVICE
from tests.docs.walks.recorder import ROOT, WALKS, Function, Line, Walk
from tests.support.deadlines import timeout, within

REPETITIONS = 5  # what goes on beside a walk on a busy machine is not in all of them
QUIET = 0.2  # seconds in which an idle system writes nothing down: heartbeats leave no longer ones
LOOKS = 20  # after which a walk begins all the same: what is in all repetitions counts alone
SUPERVISOR = "MainProcess"
GETS_MESSAGE = ("call", "ccm/bus/sockets.py", "Hub._take")
NAMESPACE = "/api/v1/namespaces/default"
# The prefix of names, and the reason of the last Event about an object.
KINDS = {"Node": ("vm", "Synced"), "Service": ("web", "EnsuredLoadBalancer")}

Files = dict[str, list[str]]  # in the order in which they first ran, each with its processes


def measure(directory: Path) -> dict[Walk, Files]:
    """The files of every walk."""
    records = directory / "records"
    records.mkdir()
    # Each interpreter imports this by itself as it starts, so the workers do, too.
    code = f"from tests.docs.walks.recorder import record\n\nrecord({str(records)!r})\n"
    (directory / "sitecustomize.py").write_text(code)
    path = os.pathsep.join(filter(None, (str(directory), str(ROOT), os.environ.get("PYTHONPATH"))))
    limit = patch.object(components, "START_TIMEOUT", timeout(components.START_TIMEOUT))
    with patch.dict(os.environ, {"PYTHONPATH": path}), limit:
        created = asyncio.run(_create_all(directory / "sandbox", records))
    texts = [file.read_text() for file in records.iterdir()]
    lines = sorted(Line(*json.loads(line)) for text in texts for line in text.splitlines())
    return {walk: files_of(walk, lines, created[walk.kind]) for walk in WALKS}


async def _create_all(directory: Path, records: Path) -> dict[str, dict[str, float]]:
    """By kind, when objects of which names were created."""
    async with Sandbox(SandboxOptions(str(directory), nodes=0, node_workers=1)) as sandbox:
        numbers = range(REPETITIONS + 1)
        return {
            kind: {f"{prefix}-{n}": await _create(sandbox, kind, n, records) for n in numbers}
            for kind, (prefix, _) in KINDS.items()
        }


async def _create(sandbox: Sandbox, kind: str, number: int, records: Path) -> float:
    """Create an object, when nothing else goes on, and wait for the last Event about it."""
    await _until_idle(records)
    prefix, reason = KINDS[kind]
    at, name = time.monotonic(), f"{prefix}-{number}"
    if kind == "Node":  # in one write: a later one of its kubelet would come into the walk
        await sandbox.cloud.add(new_machines(number, 1))
        await sandbox.kube.post(NODES, registration(name))
    else:
        body = {**SERVICE, "metadata": {"name": name, "namespace": "default"}}
        await sandbox.kube.post(f"{NAMESPACE}/services", body)
    query = {"fieldSelector": f"involvedObject.name={name},reason={reason}"}
    async with within():
        while not (await sandbox.kube.get(f"{NAMESPACE}/events", query))["items"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return at


async def _until_idle(records: Path) -> None:
    """Until nothing that is counted has run for a while; on a busy machine that may never be."""
    before = -1
    for _ in range(LOOKS):
        size = sum(file.stat().st_size for file in records.iterdir())
        if size == before:
            return
        before = size
        await asyncio.sleep(QUIET)


def files_of(walk: Walk, lines: list[Line], created: dict[str, float]) -> Files:
    """What the repetitions but the first, a warm-up, have in common, in their order."""
    worker = walk.kind.lower()  # others get the object as well
    lines = [line for line in lines if line.process.startswith((SUPERVISOR, worker))]
    runs = []
    for name, at in created.items():
        start = _find(lines, "call", walk.start, walk.start_words, name, at)
        end = _find(lines, "return", walk.end, walk.end_words, name, start.at)
        ran = [line for line in lines if start.at <= line.at <= end.at]
        begins = {end.process: start.at, SUPERVISOR: _taken_up_at(ran, start)}
        took_part = (line for line in ran if line.at >= begins.get(line.process, math.inf))
        runs.append({(line.file, line.process): 0 for line in took_part})
    _, first, *others = runs
    files: Files = {}
    for file, process in first:
        if all((file, process) in other for other in others):
            files.setdefault(file, []).append(process.replace(SUPERVISOR, "supervisor"))
    return files


def _taken_up_at(ran: list[Line], start: Line) -> float:
    """From when on the supervisor takes part in a walk that begins so."""
    if start.process == SUPERVISOR:
        return start.at
    received = (line.at for line in ran if line.process == SUPERVISOR and line[2:5] == GETS_MESSAGE)
    return next(received, math.inf)


def _find(
    lines: list[Line], event: str, function: Function, words: tuple[str, ...], name: str, at: float
) -> Line:
    """The first line since `at` of this event with these words."""
    key, wanted = (event, *function), [word.format(name=name) for word in words]
    lines = [line for line in lines if line[2:5] == key and line.at >= at]
    found = [line for line in lines if all(word in line.text for word in wanted)]
    assert found, f"{name}: no {event} of {function} with {wanted}"
    return found[0]
