"""An API server with one Lease, and replicas on faulty wires to it; for tests in virtual time."""

import asyncio
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.kube.lease import LeaseClient
from ccm.model.objects import Json, mapping, text
from ccm.supervisor.leader_election import LeaderElectionConfig, LeaderElector, WorkerProbes

CONFIG = LeaderElectionConfig(lease_duration=15.0, renew_deadline=10.0, retry_period=2.0)


class Fate(Enum):
    """What becomes of one request."""

    ANSWERED = "answered"
    REFUSED = "connection refused"
    FAILED = "500 from the server"
    FORBIDDEN = "403 from the server"
    LOST = "never arrives"
    UNHEARD = "carried out, and the answer is lost"
    FROZEN = "carried out, and this process is stopped before it sees the answer"


@dataclass(frozen=True, slots=True)
class Request:
    """How the next request goes: seconds until it arrives, and from there until its answer."""

    fate: Fate = Fate.ANSWERED
    there: float = 0.005
    back: float = 0.005


class ApiServer:
    """One Lease with compare-and-swap, and the Events."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.events: list[Json] = []
        self.requested: list[str] = []
        self.log: list[tuple[float, str, str]] = []  # when, method, who holds it then
        self._version = 0

    @property
    def spec(self) -> Json:
        assert self.lease is not None
        return cast(Json, self.lease["spec"])

    def holder(self) -> str:
        spec = mapping(self.lease.get("spec")) if self.lease else {}
        return text(spec.get("holderIdentity"))

    def handle(self, method: str, path: str, body: Json) -> Json:
        self.requested.append(f"{method} {path}")
        if path.endswith("/events"):
            self.events.append(body)
            return body
        match method:
            case "GET" if self.lease is None:
                raise KubernetesError(404, "NotFound", "no such lease", None)
            case "POST" if self.lease is not None:
                raise KubernetesError(409, "AlreadyExists", "it is there", None)
            case "PUT" if self.lease is None:
                raise KubernetesError(404, "NotFound", "no such lease", None)
            case "PUT" if body["metadata"]["resourceVersion"] != self._newest():
                raise KubernetesError(409, "Conflict", "the object has been modified", None)
            case "POST" | "PUT":
                self.put(body)
        now = asyncio.get_running_loop().time()
        self.log.append((now, method, self.holder()))
        return deepcopy(cast(Json, self.lease))

    def put(self, body: Json) -> None:
        """Store it as someone who forces it would."""
        self._version += 1
        self.lease = deepcopy(body)
        self.lease.setdefault("metadata", {}).setdefault("uid", "uid-1")
        self.lease["metadata"]["resourceVersion"] = str(self._version)

    def annotate(self) -> None:
        if self.lease:
            self.put(self.lease)

    def _newest(self) -> str:
        return str(self.lease["metadata"]["resourceVersion"]) if self.lease else ""


class Wire:
    """One replica's way to the API server; `script` says how its next requests go."""

    def __init__(self, server: ApiServer, script: Iterable[Request] = ()) -> None:
        self.server = server
        self.script: Iterator[Request] = iter(script)
        self.normally = self.events = Request()
        self.timeouts: list[float] = []  # of the requests for the Lease

    @property
    def kube(self) -> Kube:
        return cast(Kube, self)

    def lane(self) -> Kube:
        return self.kube

    async def post(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        return await self.request("POST", path, body, timeout=timeout)

    async def put(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        return await self.request("PUT", path, body, timeout=timeout)

    async def request(
        self, method: str, path: str, body: Any = None, *, timeout: float = 30.0
    ) -> Json:
        assert timeout > 0
        is_event = path.endswith("/events")
        go = self.events if is_event else next(self.script, self.normally)
        if not is_event:
            self.timeouts.append(timeout)
        arrival = asyncio.get_running_loop().create_future()
        if go.fate is Fate.FROZEN:
            # No timeout fires in a process that is stopped.
            self._arrive(go, arrival, method, path, deepcopy(body))
            return cast(Json, await arrival)
        try:
            async with asyncio.timeout(timeout):
                self._arrive(go, arrival, method, path, deepcopy(body))
                return cast(Json, await arrival)
        except TimeoutError as error:
            raise Unreachable(f"no answer within {timeout:g} s") from error

    def _arrive(self, go: Request, arrival: "asyncio.Future[Json]", *what: Any) -> None:
        loop = asyncio.get_running_loop()

        def answer(result: Json | Exception) -> None:
            if arrival.done() or go.fate is Fate.UNHEARD:
                return
            if isinstance(result, Exception):
                arrival.set_exception(result)
            else:
                arrival.set_result(result)

        def land() -> None:
            if go.fate is Fate.LOST:
                return
            try:
                result: Json | Exception = self._handled(go, *what)
            except (KubernetesError, Unreachable) as error:
                result = error
            loop.call_later(go.back, answer, result)

        loop.call_later(go.there, land)

    def _handled(self, go: Request, *what: Any) -> Json:
        if go.fate is Fate.REFUSED:
            raise Unreachable("refused")
        if go.fate is Fate.FAILED:
            raise KubernetesError(500, "InternalError", "etcd is away", None)
        if go.fate is Fate.FORBIDDEN:
            raise KubernetesError(403, "Forbidden", "no", None)
        return self.server.handle(*what)


class Replica:
    """A leader with a clock of its own, and when in the world's time its permits began and ended.

    `may_act_until` shrinks only in an orderly release, or once its workers said that they stopped:
    one that is frozen does not hear that a permission is taken back. What these have sent may
    still arrive for the grace of a write.
    """

    def __init__(
        self,
        server: ApiServer,
        identity: str,
        script: Iterable[Request] = (),
        *,
        timing: LeaderElectionConfig = CONFIG,
        offset: float = 0.0,
        rate: float = 1.0,
        lease: str = "ccm",
    ) -> None:
        self.wire = Wire(server, script)
        file = LeaseClient(self.wire.kube, "ns", lease, identity, timing.lease_duration)
        self.identity, self._offset, self._rate = identity, offset, rate
        self.is_ready = True
        self.down: dict[str, str] = {}
        self.fencing: float | None = 0.01  # seconds until our workers stopped; None: one is frozen
        self.fenced_at = float("-inf")
        probes = WorkerProbes(lambda: self.is_ready, self._are_fenced, lambda: self.down)
        self.leader = LeaderElector(file, timing, self._on_permit, self.clock, probes)
        self._grace = timing.write_grace
        self.permits: list[tuple[float, float]] = []  # when it was told, until when it says
        self.may_act_until = float("-inf")
        self.rivals: list[Replica] = []
        self.overlaps: list[str] = []

    def clock(self) -> float:
        return asyncio.get_running_loop().time() * self._rate + self._offset

    def _on_permit(self, until: float) -> None:
        now = asyncio.get_running_loop().time()
        end = (until - self._offset) / self._rate if until else 0.0
        self.permits.append((now, end))
        if end <= now:
            return
        self.may_act_until = max(self.may_act_until, end)
        self.overlaps += [
            f"{self.identity} at {now:.3f}, {rival.identity} until {rival.may_act_until:.3f}"
            for rival in self.rivals
            if rival.may_act_until > now
        ]

    def hurt(self, fencing: float | None = 0.01) -> None:
        """One of its workers does not run any more; the others take so long to stop acting."""
        self.is_ready, self.down, self.fencing = False, {"node-0": "no credentials"}, fencing

    def fix(self) -> None:
        self.is_ready, self.down, self.fencing = True, {}, 0.01

    def _are_fenced(self) -> bool:
        """Asked while nothing is permitted, from when that was told; ever, if nothing was."""
        now, (reported, end) = asyncio.get_running_loop().time(), [(0.0, 0.0), *self.permits][-1]
        assert not end
        if self.fencing is None or now < reported + self.fencing:
            return False
        if self.fenced_at < reported:
            self.fenced_at = now
            self.may_act_until = min(self.may_act_until, now + self._grace)
        return True

    async def release(self) -> None:
        """As the supervisor does: its workers have ended by now."""
        self.may_act_until = float("-inf")
        await self.leader.release()

    def start(self) -> None:
        self._running = asyncio.create_task(self.leader.run())

    @property
    def has_ended(self) -> bool:
        return self._running.done()

    async def kill(self) -> None:
        """End it without a word; what is under way still arrives."""
        self._running.cancel()
        await asyncio.wait({self._running})
