"""Noise on every door of a running supervisor: it answers or hangs up, and goes on as before.

Each door has tests of its own in process, with chosen input (`unit/test_bus.py`,
`unit/test_control.py`, `integration/https/test_listener.py`). Only this one sees all of
them on the supervisor's one loop.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import pytest
import zmq
import zmq.asyncio

from ccm.bus.frames import Ack, Heartbeat, encode
from tests.support.deadlines import PATIENCE, Deadline, within
from tests.support.kube.cluster import RealCluster
from tests.support.kube.ports import ReservedPort
from tests.support.pki import trusting_anybody
from tests.support.running import Json, Supervisor, Where, until

pytestmark = pytest.mark.real

SECONDS = float(os.environ.get("CCM_FUZZ_SECONDS", "2"))  # for each door
COMMANDS = ("status", "restart", "scale", "deletions", "explain", "log-level", "no-such", None)
VALUES: tuple[object, ...] = (
    None,
    10**30,
    "",
    "node-0",
    "a" * 5000,
    [],
    {},
    {"a": [1]},
    True,
    0.5,
    "\x00\n",
)
KEYS = ("worker", "count", "action", "kind", "name", "verbosity", "reason", "x")
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "NONSENSE", "")
PATHS = ("/healthz", "/livez?verbose", "/readyz/x", "/metrics", "/configz", "/../x", "/%00", "*")
HEADERS = ("Authorization: Bearer x", "Authorization:", "X-Remote-User: root", "Host: " + "h" * 900)

CONTROL, HTTPS = {"answer", "error"}, {"200", "403"}
"""What comes back at these doors, among other things."""

REVIEWS = [
    {"apiGroups": [f"{group}.k8s.io"], "resources": [resource], "verbs": ["create"]}
    for group, resource in (
        ("authentication", "tokenreviews"),
        ("authorization", "subjectaccessreviews"),
    )
]


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 7, 64, 4096)))


def control_request(rng: random.Random) -> bytes:
    """A line for the control socket: a command with odd arguments, or no JSON at all."""
    if rng.random() < 0.3:
        return noise(rng).replace(b"\n", b"") + b"\n"
    body: Json = {"command": rng.choice(COMMANDS)}
    body |= {rng.choice(KEYS): rng.choice(VALUES) for _ in range(rng.randrange(3))}
    if body["command"] in ("restart", "scale"):
        body |= {"worker": "nobody", "count": "three"}  # nothing that would really restart
    return orjson.dumps(body, default=str) + b"\n" if 10**30 not in body.values() else b"[1e999]\n"


async def knock_on_control(path: Path, rng: random.Random) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(control_request(rng))
        await writer.drain()
        if rng.random() < 0.1:
            return "left"
        async with within():
            answer = await reader.readline()
        if not answer:
            return "hung up"
        return "error" if "error" in orjson.loads(answer) else "answer"
    except (OSError, asyncio.IncompleteReadError):
        return "hung up"
    finally:
        writer.close()


async def knock_on_bus(path: Path, rng: random.Random) -> str:
    """A stranger: raw bytes, or a ZeroMQ peer that calls itself as a worker is called."""
    if rng.random() < 0.5:
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(noise(rng))
        await asyncio.sleep(0.001)
        writer.close()
        return "raw"
    socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 50)
    socket.setsockopt(zmq.IDENTITY, rng.choice((b"stranger", b"node-0.9", b"\x01\x02")))
    socket.connect(f"ipc://{path}")
    frames = [
        noise(rng),
        encode(Ack(1, 1)),
        encode(Heartbeat({})),
        b"{}",
        b'{"t":"Permit","until":9e9}',
    ]
    await socket.send_multipart(rng.choices(frames, k=rng.randrange(1, 4)))
    await asyncio.sleep(0.001)
    socket.close()
    return "peer"


async def knock_on_https(port: int, rng: random.Random) -> str:
    """What came back: a status, or how the connection ended."""
    tls = None if rng.random() < 0.2 else trusting_anybody()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        try:
            method = rng.choice(("GET", rng.choice(METHODS)))  # else hardly any gets through
            line = f"{method} {rng.choice(PATHS)} HTTP/1.1\r\n"
            headers = "".join(f"{h}\r\n" for h in rng.sample(HEADERS, rng.randrange(3)))
            whole = f"{line}{headers}Connection: close\r\n\r\n".encode()
            is_noise = rng.random() < 0.2
            writer.write(noise(rng) if is_noise else whole)
            if rng.random() < 0.2:
                writer.write_eof() if writer.can_write_eof() else writer.close()
            async with within(0.5 if is_noise else PATIENCE):
                head = await reader.readline()
            return head.split()[1].decode() if head.startswith(b"HTTP/") else "hung up"
        finally:
            writer.close()
    except (OSError, asyncio.IncompleteReadError, IndexError):
        return "hung up"
    except TimeoutError:
        return "silence"  # it waits for the rest of a request


async def test_noise_on_every_door_changes_nothing(where: Where, cluster: RealCluster) -> None:
    cluster.grant("ccm", REVIEWS)
    seed = int(os.environ.get("CCM_FUZZ_SEED", "7"))
    rng, counts = random.Random(seed), Counter[str]()
    reserved = ReservedPort()
    port = reserved.number
    serving = (f"--secure-port={port}", "--permit-port-sharing", "--bind-address=127.0.0.1")
    with Supervisor(where, "--controllers=*", *serving) as supervisor:
        before = supervisor.wait_running()
        doors: tuple[tuple[Callable[[], Awaitable[str]], set[str]], ...] = (
            (lambda: knock_on_control(supervisor.control, rng), CONTROL),
            (lambda: knock_on_bus(supervisor.runtime / "bus.sock", rng), set()),
            (lambda: knock_on_https(port, rng), HTTPS),
        )
        for knock, kinds in doors:
            began, deadline = time.monotonic(), Deadline(SECONDS + PATIENCE)
            while time.monotonic() - began < SECONDS or not kinds <= counts.keys():
                assert not deadline.has_passed(), counts
                results = await asyncio.gather(*(knock() for _ in range(32)))
                counts.update(results)
        await until("it answers", supervisor.status)
        pids = supervisor.pids()
        log = supervisor.log.read_text(errors="replace")
    reserved.release()
    print(f"seed {seed}: {dict(counts)}")
    assert pids == {name: worker["pid"] for name, worker in before.items()}
    for sign in ("Traceback", "not handled", "command failed", "part of the supervisor failed"):
        assert sign not in log, log[-3000:]
    assert not [status for status in counts if status.startswith("5") and status != "501"], counts
    assert counts.keys() >= CONTROL | HTTPS
