"""Which calls are followed, and what writes them down in each process that is measured."""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache, partial
from inspect import CO_OPTIMIZED
from opcode import opname
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple, TextIO

from multiprocess import current_process

Function = tuple[str, str]  # file and qualified name


@dataclass(frozen=True, slots=True)
class Walk:
    """From a call to the return of a function, with these words among its variables.

    `{name}` stands for the name of a new object of `kind`, `budget` is the most files it may pass.
    """

    title: str
    kind: Literal["Node", "Service"]
    start: Function
    start_words: tuple[str, ...]
    end: Function
    end_words: tuple[str, ...]
    budget: int


RECEIVED = ("ccm/http.py", "HttpConnection.data_received")
ANSWERED = ("ccm/kube/client.py", "Kube.request")
GATE = ("ccm/cloud/gate.py", "WorkerGate.call")
POINTS = {RECEIVED, ANSWERED, GATE}
ADDED = ("ADDED", '"{name}"')
STATUS = ("PATCH", "/services/{name}/status", "/status/loadBalancer")

NODE = "Node: from the watch event of a tainted Node to the answer of the worker's first patch"
CALL = "Cloud call: from the provider's call of the gate to the answer that comes out of it"
SERVICE = (
    "Service: from the watch event of a LoadBalancer to the answer of the patch of its address"
)

WALKS = (
    Walk(NODE, "Node", RECEIVED, ADDED, ANSWERED, ("PATCH", "/nodes/{name}"), budget=33),
    Walk(CALL, "Node", GATE, (), GATE, (), budget=13),
    Walk(SERVICE, "Service", RECEIVED, ADDED, ANSWERED, STATUS, budget=37),
)

BACKGROUND = {
    ("ccm/supervisor/leader_election.py", "LeaderElector.run"),
    ("ccm/supervisor/children.py", "Children.run"),
    ("ccm/supervisor/supervisor.py", "Supervisor._check_directory"),
    ("ccm/supervisor/supervisor.py", "Supervisor._check_package"),
    ("ccm/supervisor/outages.py", "CloudOutages.run"),
    ("ccm/supervisor/tokens.py", "SharedToken.run"),
    ("ccm/supervisor/systemd.py", "update_status"),
    ("ccm/supervisor/deletions.py", "DeletionGovernor.on_message"),
    ("ccm/supervisor/https/server.py", "_poll_files"),
    ("ccm/supervisor/https/tls.py", "ServingTls._read"),
    ("ccm/log.py", "_Line.format"),
    ("ccm/log.py", "seconds_since"),
    ("ccm/redaction.py", "safe_text"),
    ("ccm/redaction.py", "register_secrets"),
    ("ccm/tls.py", "Connector.connect"),
    ("ccm/model/conform.py", "conform"),
    ("ccm/model/cloud.py", "Gone.__post_init__"),
    ("ccm/model/cloud.py", "Unknown.__post_init__"),
    ("ccm/model/cloud.py", "Balancer.__post_init__"),
    ("ccm/supervisor/worker_counters.py", "WorkerCounters.update"),
    ("ccm/supervisor/informer.py", "SharedInformer.acknowledge"),
    ("ccm/bus/sockets.py", "Port._renew"),
    ("ccm/kube/events.py", "EventRecorder.run"),
    ("workers/runner.py", "Runner._send_heartbeats"),
    ("workers/node/passes.py", "MonitorPass.run"),
    ("workers/node/passes.py", "RefreshPass.run"),
}
"""Functions that run anyway, those of log records, of heartbeats and of texts that are shown,
what a worker acknowledges, which comes sooner or later than its next step, and what connects again
after a connection was idle for long.

What they call is not counted either.
"""

ROOT = Path(__file__).parents[3]
AWAITS = 2  # the argument of RESUME, or more, where a coroutine goes on that had to wait


class Line(NamedTuple):
    """What is written, as JSON; `text` has the arguments of a function that a walk names."""

    at: float
    process: str
    event: str
    file: str
    function: str
    text: str


def record(directory: str) -> None:
    """Begin, in all threads and forks, unless this is one of the sandbox's servers."""
    if not any(argument.startswith("ccm.sandbox") for argument in sys.orig_argv):
        _begin(directory)
        os.register_at_fork(after_in_child=partial(_begin, directory))


def _begin(directory: str) -> None:
    path = Path(directory) / f"{os.getpid()}.jsonl"
    profile = partial(_profile, path.open("w", buffering=1))
    threading.setprofile(profile)
    sys.setprofile(profile)


def _profile(file: TextIO, frame: FrameType, event: str, _: Any) -> None:
    """What the interpreter calls: write down who is called, and who calls.

    When a coroutine goes on, those that await it are entered, too, but run no code.
    """
    operation, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    is_new = event == "call" and argument < AWAITS
    is_over = event == "return" and opname[operation].startswith("RETURN")
    if is_new or is_over or event == "c_call":
        _write(file, event, frame)
    if is_new:
        _write(file, "runs", frame.f_back)


def _write(file: TextIO, event: str, frame: FrameType | None) -> None:
    function = frame and _function(frame.f_code)
    if frame and function and not _is_background(frame):
        text = " ".join(map(str, frame.f_locals.values())) if function in POINTS else ""
        line = Line(time.monotonic(), current_process().name, event, *function, text)
        file.write(json.dumps(line) + "\n")


@cache
def _function(code: CodeType) -> tuple[str, str] | None:
    """File and function; None when it is not the product's, or runs while one is imported."""
    file = code.co_filename.removeprefix(f"{ROOT}/")
    is_function = file.startswith(("ccm/", "workers/")) and code.co_flags & CO_OPTIMIZED
    return (file, code.co_qualname) if is_function else None


def _is_background(frame: FrameType | None) -> bool:
    while frame and _function(frame.f_code) not in BACKGROUND:
        frame = frame.f_back
    return frame is not None
