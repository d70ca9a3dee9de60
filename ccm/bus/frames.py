"""What passes between supervisor and workers: a spec at the start, then messages as JSON.

Objects of Kubernetes are lines of their own behind it: who hands them on does not read them.

Times are CLOCK_MONOTONIC seconds, which all processes of one host share.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Self, get_args

import orjson

from ccm.decide.quarantine import Suspicions
from ccm.redaction import safe_values
from ccm.settings import Settings
from ccm.tls import Server

MAX_FRAME = 8 << 20  # bytes
REPORTED_LIMIT = 4000  # characters of a text in a report


class BadFrame(Exception):
    """A message that cannot be understood; the sender is named by the transport."""


class MessageTooLarge(Exception):
    """A message of more than `MAX_FRAME` bytes: the other side would end the connection."""


# Handed over when the process is spawned.


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One start of one worker.

    `name` is what an operator calls it ("node-0"), `ident` names this start of it on the bus
    ("node-0.3-" and something random), `controller` names what it runs (`load_controller`).
    The token for `server` comes in a file: see `UseToken`.
    """

    name: str
    ident: str
    controller: str
    bus_path: str
    journal_path: str
    supervisor_pid: int
    settings: Settings
    server: Server
    cluster_uid: str = ""
    suspicions: Suspicions = field(default_factory=dict)
    proves: bool = False
    """Whether it shows the cloud's credentials by a read of its own before all else."""


# Worker to supervisor.


@dataclass(frozen=True, slots=True)
class Hello:
    """First word of a worker: what it wants of which kinds (see `ccm.model.objects.Projection`).

    The rest is what only the provider knows; the supervisor, which loads none, reads it from here.
    """

    projections: list[dict[str, Any]]
    quotas: dict[str, list[float]]  # budget class → calls a second, burst
    provider_ids: str = ""  # regular expression of those that are this cloud's


@dataclass(frozen=True, slots=True)
class Ack:
    """Up to frame `seq` of `epoch` all is taken in, and no key that moved away is in flight."""

    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Resync:
    """A frame is missing: send everything again."""

    why: str


@dataclass(frozen=True, slots=True)
class Synced:
    """The snapshot is complete in the worker."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life from the worker's own loop, with what `status` shows of it.

    `numbers` is what it has counted since its start (see `ccm.counters.Numbers`).
    """

    status: dict[str, Any]
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """A cloud call of class `budget` waits in this worker; `number` is for the answer.

    `owner` is on whose behalf it is: owners take turns.
    """

    number: int
    budget: str
    priority: int
    owner: str = ""


@dataclass(frozen=True, slots=True)
class CloudThrottled:
    """The cloud answered that we are too fast; `seconds` is its own word on when to come back.

    `granted` is when the call that it refused was granted.
    """

    budget: str
    seconds: float | None
    granted: float


@dataclass(frozen=True, slots=True)
class CloudRemaining:
    """An answer of the cloud said that so many calls more may be made in the next `seconds`."""

    budget: str
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ProposeDeletions:
    """What the cloud said in one pass about the nodes of this worker that are not Ready.

    `asked` is how many nodes the pass was about. `gone` has an entry
    `[name, uid, evidence, asked_at, is_final]` for each that the cloud positively does not have,
    with the time of the question, and whether two kinds of read named the machine and said that it
    ended for ever; a node about which the cloud said anything else is in `not_gone`.
    """

    asked: int
    gone: list[list[Any]]
    not_gone: list[str]


@dataclass(frozen=True, slots=True)
class CompareRoutes:
    """The machine of a Ready Node is gone, and its routes may be; also to the route workers."""


@dataclass(frozen=True, slots=True)
class Survived:
    """A suspected key was reconciled, and this worker is still there."""

    key: str


@dataclass(frozen=True, slots=True)
class Explained:
    """The answer to `Explain` with this number."""

    number: int
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fenced:
    """The answer to `AskFenced` with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Why this worker ends and starting it again is pointless: lines for the operator."""

    lines: list[str]


@dataclass(frozen=True, slots=True)
class TokenRefused:
    """The API server does not take the token of this worker: get another one."""


# Supervisor to worker.


@dataclass(frozen=True, slots=True)
class Objects:
    """Changed objects: entries `[kind, key, version]`, and the JSON text of each in `values`.

    The text of a deleted object is empty. `moved` names those of them, as `[kind, key]`, which now
    belong to another worker.
    `epoch` counts snapshots, `seq` the frames of one epoch from 1. The frame with `complete` ends
    the snapshot; what it did not contain does not exist. `restores` counts how often the API server
    went back to an older state: versions of before a restore say nothing about what is newer.
    """

    epoch: int
    seq: int
    complete: bool
    entries: list[Any]
    values: list[bytes]
    moved: list[list[str]] = field(default_factory=list)
    restores: int = 0

    @classmethod
    def of(
        cls, epoch: int, seq: int, complete: bool, objects: Iterable[Any], *moved: list[str]
    ) -> Self:
        """From `[kind, key, version, object]`, with None for a deleted one."""
        known = list(objects)
        entries = [entry[:3] for entry in known]
        values = [b"" if entry[3] is None else orjson.dumps(entry[3]) for entry in known]
        return cls(epoch, seq, complete, entries, values, [*moved])


@dataclass(frozen=True, slots=True)
class Permit:
    """You may write until this time; a time in the past means stop now."""

    until: float


@dataclass(frozen=True, slots=True)
class AskFenced:
    """Say `Fenced` if you may not write any more, and nothing that you asked of a cloud goes on."""

    number: int


@dataclass(frozen=True, slots=True)
class UseToken:
    """A file holds the token that this worker is to show to the API server from now on."""

    file: str


@dataclass(frozen=True, slots=True)
class Granted:
    """The call of request `number` may be made, from `at` for `ccm.decide.budget.GRANT_TIMEOUT`."""

    number: int
    at: float


@dataclass(frozen=True, slots=True)
class PermitDeletions:
    """These nodes may be deleted, once and now: entries `[name, uid, evidence]`."""

    nodes: list[list[str]]


@dataclass(frozen=True, slots=True)
class Explain:
    """Say what you know about this key."""

    number: int
    key: str


@dataclass(frozen=True, slots=True)
class LogLevel:
    """Log this much from now on; 4 and more is every decision."""

    verbosity: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no new keys, finish those in flight within `seconds`, then end."""

    seconds: float


Message = (
    Hello
    | Ack
    | Resync
    | Synced
    | Heartbeat
    | GrantRequest
    | CloudThrottled
    | CloudRemaining
    | ProposeDeletions
    | CompareRoutes
    | Survived
    | Explained
    | Fenced
    | Fault
    | TokenRefused
    | Objects
    | Permit
    | AskFenced
    | UseToken
    | Granted
    | PermitDeletions
    | Explain
    | LogLevel
    | Drain
)


_TYPES: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}
_REPORTED: dict[type[Message], str] = {
    Heartbeat: "status",
    Explained: "status",
    Fault: "lines",
    Resync: "why",
}
"""The fields with texts for people."""
_FIELDS = {kind: tuple(item.name for item in fields(kind)) for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """The JSON text of a message, its fields and its type under `t`; then a line for each value.

    What a worker reports is bounded in here, whatever objects and clouds have put into it.
    """
    kind = type(message)
    body = {name: getattr(message, name) for name in _FIELDS[kind]}
    if name := _REPORTED.get(kind):
        body[name] = safe_values(body[name], REPORTED_LIMIT)
    lines = body.pop("values") if kind is Objects else ()
    frame = b"\n".join((orjson.dumps({"t": kind.__name__, **body}), *lines))
    if len(frame) > MAX_FRAME:
        raise MessageTooLarge(f"{kind.__name__}: {len(frame)} bytes are more than {MAX_FRAME}")
    return frame


def decode(frame: bytes) -> Message:
    """The message in a frame; `BadFrame` when there is none of ours."""
    if len(frame) > MAX_FRAME:
        raise BadFrame(f"{len(frame)} bytes are more than {MAX_FRAME}")
    head, *lines = frame.split(b"\n")
    try:
        body = orjson.loads(head)
        kind = _TYPES[body.pop("t")]
        if kind is Objects:
            body["values"] = lines
        if len(lines) != (len(body["entries"]) if kind is Objects else 0):
            raise BadFrame(f"{len(lines)} lines behind {kind.__name__}")
        return kind(**body)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise BadFrame(f"not a message of ours: {error}") from error
