"""Performing the steps of a plan: one at a time, remembered, and told to people."""

import logging
import time
from dataclasses import replace
from typing import assert_never

from ccm import metrics
from ccm.errors import CloudError, KubernetesError, NoRoom, Refused, RetryAfter
from ccm.kube.events import Event
from ccm.model.service import Service
from workers.controller import ControllerContext, Result
from workers.performer import Patch
from workers.service import notes, vanished
from workers.service.balancers import Balancers
from workers.service.concerns import concerns, ingress_json
from workers.service.hosts import Hosts
from workers.service.patches import patch_for
from workers.service.plan import (
    AddFinalizer,
    Confirm,
    DeleteBalancer,
    Doing,
    Ensure,
    Forget,
    LookForBalancer,
    Made,
    Memory,
    Refusal,
    RemoveFinalizer,
    SetStatus,
    UpdateHosts,
    Write,
)

log = logging.getLogger(__name__)

REPLAN = (409, 422)  # the object is not what it was
STILL_THERE = 5.0  # seconds until another look at a Service that only the feed lacks
DOUBTFUL = 60.0  # seconds until another look when too many have vanished


class Steps:
    """Performs steps. `memories` and `given` are this process's knowledge, by key of the Service.

    `given` is what each balancer was last to get as hosts, whether that worked or not.
    """

    def __init__(self, context: ControllerContext, cloud: Balancers) -> None:
        self._context, self._cloud = context, cloud
        self.memories: dict[str, Memory] = {}
        self.given: dict[str, Hosts] = {}
        self._rejected: dict[str, Patch] = {}
        self._is_doubting = False
        self.ensured = self.updated = self.deleted = 0

    async def take(self, key: str, step: Doing) -> Result | None:
        """Perform `step`; an outcome when that ends the work on the key, else plan again."""
        match step:
            case AddFinalizer() | RemoveFinalizer() | SetStatus():
                await self._write(key, step)
            case Ensure():
                await self._ensure(key, step)
            case UpdateHosts(service, hosts):
                await self._update_hosts(key, service, hosts)
            case DeleteBalancer(service, is_orphan):
                await self._delete(key, service, is_orphan)
            case Confirm(service):
                await self._confirm(key, service)
            case LookForBalancer(service):
                return await self._look(key, service)
            case Forget():
                self._forget(key)
            case _:
                assert_never(step)
        return None

    async def _write(self, key: str, write: Write) -> None:
        patch = patch_for(write)
        try:
            answer = await self._context.performer.perform(patch)
        except KubernetesError as error:
            self._judge(key, write, patch, error)
            raise
        self._rejected.pop(key, None)
        self._context.store.wrote("Service", key, answer)
        memory = self.memories.get(key)
        if isinstance(write, SetStatus) and memory and memory.made:
            made = replace(memory.made, stored=Service(answer).ingress)
            self.memories[key] = replace(memory, made=made)

    def _judge(self, key: str, write: Write, patch: Patch, error: KubernetesError) -> None:
        """Say nothing of a race, which planning again resolves; the same answer twice is none."""
        if error.status == 404:
            return
        is_race = error.status in REPLAN and self._rejected.get(key) != patch
        self._rejected[key] = patch
        if is_race:
            return
        why = f"{notes.failure_of(write)}: {error}"
        self._tell(notes.sync_failed(write.service, why))
        if error.status in REPLAN:
            raise CloudError(why) from error  # with back-off, not at once as after a race

    async def _ensure(self, key: str, step: Ensure) -> None:
        service, hosts = step.service, step.hosts
        memory = self.memories.get(key) or Memory(service)
        memory = self.memories[key] = replace(memory, is_deleted=False)
        self.given[key] = hosts
        if not step.is_check:
            self._tell(notes.ensuring(service))
        if not hosts.nodes:
            self._tell(notes.no_hosts(service))
        asked = concerns(service)
        try:
            balancer = await self._cloud.ensure(service, hosts, step.is_check)
        except RetryAfter:
            raise
        except Refused as error:
            is_for_room = isinstance(error, NoRoom)
            refusal = Refusal(asked, hosts, time.monotonic(), str(error), is_for_room)
            self.memories[key] = replace(memory, refused=refusal)
            return
        except CloudError as error:
            why = f"failed to ensure load balancer: {error}"
            self._tell(notes.sync_failed(service, why))
            raise
        self.ensured += 1
        self._context.counters.count(metrics.BALANCERS_ENSURED)
        ingress = ingress_json(balancer.ingress) if balancer else None
        made = Made(asked, hosts, time.monotonic(), ingress)
        self.memories[key] = replace(memory, made=made, refused=None)
        if balancer and not step.is_check:
            self._tell(notes.ensured(service))
        if memory.refused and memory.refused.is_for_room:
            self._offer_room()

    async def _update_hosts(self, key: str, service: Service, hosts: Hosts) -> None:
        memory = self.memories.get(key) or Memory(service)
        self.given[key] = hosts
        now = time.monotonic()
        counters = self._context.counters
        counters.count(metrics.HOST_UPDATES)
        try:
            is_ours = await self._cloud.update_hosts(service, hosts)
        except RetryAfter:
            raise
        except Refused as error:  # no balancer: whether there has to be one is planned next
            log.info("no balancer to update", extra={"key": key, "why": str(error)})
            self.memories[key] = replace(memory, made=Made(None, hosts, now))
            return
        except CloudError as error:
            counters.count(metrics.HOST_UPDATES_FAILED)
            self._tell(notes.update_failed(service, hosts, str(error)))
            raise
        self.updated += 1
        counters.observe(metrics.HOST_UPDATE_SECONDS, seconds=time.monotonic() - now)
        made = replace(memory.made, hosts=hosts) if memory.made else Made(None, hosts, now)
        self.memories[key] = replace(memory, made=made)
        if is_ours and memory.made:
            self._tell(notes.updated(service) if hosts.nodes else notes.no_hosts(service))

    async def _delete(self, key: str, service: Service, is_orphan: bool) -> None:
        memory = self.memories.setdefault(key, Memory(service))
        self._tell(notes.deleting(service))
        try:
            await self._cloud.delete(service)
        except RetryAfter:
            raise
        except CloudError as error:
            failed = notes.sync_failed(service, f"failed to delete load balancer: {error}")
            self._tell(notes.orphan_failed(service, str(error)) if is_orphan else failed)
            raise
        self.deleted += 1
        self._context.counters.count(metrics.BALANCERS_DELETED)
        self.memories[key] = replace(memory, made=None, refused=None, is_deleted=True)
        self._tell(notes.deleted(service))
        self._offer_room()

    def _offer_room(self) -> None:
        """There may be room for one more: the Service that had none for longest has its turn."""
        refused = [(memory.refused, key) for key, memory in self.memories.items() if memory.refused]
        lacking = [(refusal.at, key) for refusal, key in refused if refusal.is_for_room]
        if lacking:
            _, first = min(lacking)
            self.memories[first] = self.memories[first].asking_again()
            self._context.queue.add(first)

    async def _confirm(self, key: str, service: Service) -> None:
        missing = [
            other
            for other, memory in self.memories.items()
            if not memory.service.is_being_deleted and not self._context.store.get("Service", other)
        ]
        if why := vanished.doubt(len(missing), len(self.memories)):
            if not self._is_doubting:
                log.error("balancers kept", extra={"why": why})
            self._is_doubting = True
            raise RetryAfter(why, DOUBTFUL)
        self._is_doubting = False
        if await vanished.is_there(self._context.performer.kube, service):
            raise RetryAfter("the API server has it, the feed has not", STILL_THERE)
        self.memories[key] = replace(self.memories[key], is_gone=True)

    async def _look(self, key: str, service: Service) -> Result | None:
        if await self._cloud.exists(service):
            self.memories[key] = Memory(service)
            return None
        return Result(f"left alone: loadBalancerClass {service.load_balancer_class} is not ours")

    def _forget(self, key: str) -> None:
        for known in (self.memories, self.given, self._rejected):
            known.pop(key, None)

    def _tell(self, note: Event) -> None:
        self._context.recorder.record(note)
