"""Troubles that pass by themselves: others meddle, rights and credentials come and go."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from ccm.errors import Refused
from ccm.kube.client import MERGE_PATCH, STRATEGIC_PATCH
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.e2e.chaos.kubelets import unless
from tests.e2e.chaos.life import Life
from tests.support.environment import NODES, SERVICES
from tests.support.fault_proxy import Around, FaultProxy, Pass, failure, pass_on
from tests.support.replicas import NAMESPACE, Election
from tests.support.running import RULES, Json, until

HOLD = "chaos.example/hold"
"""The finalizer of another controller."""
THEIRS = "203.0.113.9"
REFUSED_TOKEN = "token = refused-by-the-cloud"
LOOK = 0.02  # seconds between two looks of another writer


@dataclass
class Troubles:
    """Each begins at once and lasts as long as it was drawn; `rest` waits for the end of all."""

    election: Election
    proxy: FaultProxy
    life: Life
    config: Path  # the cloud's, with the credentials
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _busy: set[str] = field(default_factory=set)
    _is_reload_due: bool = False

    async def rest(self) -> None:
        await asyncio.gather(*self._running)

    async def slow_lease(self, delay: float, seconds: float) -> None:
        """Writes of the Lease are performed at once and answered late."""

        async def around(request: web.Request, onward: Pass) -> web.Response:
            answer = await onward()
            if request.path.endswith(self.election.lease) and request.method != "GET":
                await asyncio.sleep(delay)  # the fault, not a wait
            return answer

        self._begin("proxy", self._around(around, seconds))

    async def retry_after_an_hour(self, seconds: float) -> None:
        """The next writes of objects are answered with 429, and to be tried in an hour."""
        refuse = failure(429, "TooManyRequests", **{"Retry-After": "3600"})

        async def around(request: web.Request, onward: Pass) -> web.Response:
            is_met = request.method == "PATCH" and "/leases/" not in request.path
            return refuse() if is_met else await onward()

        self._begin("proxy", self._around(around, seconds))

    async def revoke(self, seconds: float) -> None:
        """The account of the leader, or of a replica, loses all rights for a while."""
        self._begin("rights", self._revoke(seconds))

    async def hold_service(self, name: str, seconds: float) -> None:
        self._begin(f"hold {name}", self._hold(f"{SERVICES}/{name}", seconds))

    async def hold_node(self, name: str, seconds: float) -> None:
        self._begin(f"hold {name}", self._hold(f"{NODES}/{name}", seconds))

    async def write_service(self, name: str, seconds: float) -> None:
        """Another client writes the status whenever it is not its own."""
        path, ingress = f"{SERVICES}/{name}", [{"ip": THEIRS}]

        async def write() -> None:
            there = (await self.life.api.get(path))["status"]["loadBalancer"].get("ingress")
            if there and there[0].get("ip") != THEIRS:
                body: Json = {"status": {"loadBalancer": {"ingress": ingress}}}
                await self.life.api.patch(f"{path}/status", MERGE_PATCH, body)

        self._begin(f"write {name}", self._write(write, seconds))

    async def write_node(self, name: str, seconds: float) -> None:
        """Another router says that the network is not there, whenever ours says that it is."""
        path, theirs = f"{NODES}/{name}", {"type": "NetworkUnavailable", "status": "True"}

        async def write() -> None:
            conditions = (await self.life.api.get(path))["status"]["conditions"]
            there = [one for one in conditions if one["type"] == "NetworkUnavailable"]
            if there and there[0]["status"] != "True":
                body: Json = {"status": {"conditions": [{**theirs, "reason": "Theirs"}]}}
                await self.life.api.patch(f"{path}/status", STRATEGIC_PATCH, body)

        self._begin(f"write {name}", self._write(write, seconds))

    async def credentials(self, seconds: float) -> None:
        """A reload with a token that the cloud refuses; then one with the right token."""
        self._begin("credentials", self._credentials(seconds))

    async def reload(self) -> None:
        """As the command asks for: a reload that the cloud's faults refused is repeated."""
        if self._is_reload_due:
            await until("all replicas took the credentials", self.life.processes.reload)
            self._is_reload_due = False

    async def stale(self, seconds: float) -> None:
        """The cloud's lists are those of this moment."""

        async def lag() -> None:
            fault = CloudFault(CloudFaultKind.STALE, "List*")
            made = await self.life.admin.set_fault(fault)
            await asyncio.sleep(seconds)  # the fault, not a wait
            with suppress(Refused):  # another step cleared all
                await self.life.admin.clear_faults(made.id)

        self._begin("stale", lag())

    # --- how long they last

    def _begin(self, what: str, trouble: Coroutine[Any, Any, None]) -> None:
        """One of a kind at a time."""
        if what in self._busy:
            trouble.close()
            return
        self._busy.add(what)
        task = asyncio.create_task(trouble)
        self._running.add(task)
        task.add_done_callback(lambda _: self._busy.discard(what))

    async def _around(self, around: Around, seconds: float) -> None:
        self.proxy.around = around
        await asyncio.sleep(seconds)  # the fault, not a wait
        self.proxy.around = pass_on

    async def _revoke(self, seconds: float) -> None:
        cluster = self.election.env.cluster
        account = f"{self.election.lease}-{self.life.processes.leader_name()}"
        await asyncio.to_thread(cluster.revoke, account)
        await asyncio.sleep(seconds)  # the fault, not a wait
        give = cluster.service_account_kubeconfig
        await asyncio.to_thread(give, NAMESPACE, account, RULES)

    async def _hold(self, path: str, seconds: float) -> None:
        with unless(404):
            await self._finalizers(path, lambda there: [*there, HOLD])
        await asyncio.sleep(seconds)  # the fault, not a wait
        with unless(404):
            await self._finalizers(path, lambda there: [one for one in there if one != HOLD])

    async def _finalizers(self, path: str, change: Callable[[list[str]], list[str]]) -> None:
        """Of this very version: ours come and go meanwhile."""
        while True:
            meta = (await self.life.api.get(path))["metadata"]
            there = meta.get("finalizers", [])
            if change(there) == there or ("deletionTimestamp" in meta and HOLD not in there):
                return
            body = {"resourceVersion": meta["resourceVersion"], "finalizers": change(there)}
            with unless(409):
                await self.life.api.patch(path, MERGE_PATCH, {"metadata": body})
                return

    async def _write(self, write: Callable[[], Awaitable[None]], seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with unless(404, 422):  # gone, or a Service of another type by now
                await write()
            await asyncio.sleep(LOOK)  # the other writer's own pace

    async def _credentials(self, seconds: float) -> None:
        good = self.config.read_text()
        token = next(line for line in good.splitlines() if line.startswith("token"))
        self.config.write_text(good.replace(token, REFUSED_TOKEN))
        await self.life.processes.reload()
        await asyncio.sleep(seconds)  # the fault, not a wait
        self.config.write_text(good)
        self._is_reload_due = not await self.life.processes.reload()
