"""The service duty: what it wants, and one reconcile a Service, step by step until it rests."""

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import replace

from ccm.bus.frames import Message
from ccm.cloud.interface import LoadBalancers
from ccm.decide.backoff import Backoff
from ccm.errors import Refused
from ccm.kube.events import ObjectRef
from ccm.model.objects import Json
from ccm.model.projection import Path, Projection
from ccm.model.service import Service
from ccm.settings import Settings
from workers.controller import Controller, ControllerContext, Result
from workers.service import notes
from workers.service.balancers import Balancers
from workers.service.concerns import SPEC
from workers.service.glance import glance
from workers.service.hostset import PATIENCE, HostSet
from workers.service.plan import (
    AUDIT,
    REFUSED_AGAIN,
    Ensure,
    Refuse,
    Rest,
    Rules,
    Step,
    UpdateHosts,
    plan,
)
from workers.service.predicates import LEAVING_TAINT
from workers.service.steps import Steps

COMPONENT = "service-controller"
BACKOFF = Backoff(first=5.0, most=300.0, jitter=0.0)  # upstream's, exactly
MOST_STEPS = 20  # in one reconcile; more means that somebody undoes them
UNDONE = 60.0  # seconds until another try when that is so

_META = ("name", "namespace", "uid", "annotations", "finalizers", "deletionTimestamp")
_SERVICE: tuple[Path, ...] = (
    *(("metadata", name) for name in _META),
    *(("spec", name) for name in SPEC),
    ("status", "loadBalancer"),
)
_NODE: tuple[Path, ...] = (
    ("metadata", "name"),
    ("metadata", "uid"),
    ("metadata", "deletionTimestamp"),
    ("metadata", "labels"),  # a provider may choose hosts by them
    ("spec", "providerID"),
    ("spec", "taints", ("key", LEAVING_TAINT)),
    ("status", "addresses"),
)

PROJECTIONS = (Projection("Service", _SERVICE), Projection("Node", _NODE))


def new_controller(context: ControllerContext) -> Controller | None:
    """The service duty of this process."""
    part = context.provider.load_balancers
    return ServiceController(context, part) if part else None


def concurrency(settings: Settings) -> int:
    return settings.concurrent_service_syncs


class ServiceController:
    """Keeps one balancer for each Service that wants one.

    All work on a balancer is the reconcile of its Service's key, so a host update, an ensure and a
    deletion never overlap.
    """

    def __init__(self, context: ControllerContext, part: LoadBalancers) -> None:
        self._context = context
        self._rules = Rules(context.settings.load_balancer_classes, part.supported_features)
        self._hosts = HostSet(context.store, context.provider.scheme)
        self._planned: dict[str, Service] = {}  # what was last planned for, by key
        self._due: set[str] = set()  # keys that may update their hosts once, at rest or not
        # Comparing what is most likely right leaves room for what is new.
        self._checks = asyncio.Semaphore(max(1, concurrency(context.settings) // 2))
        self._steps = Steps(context, Balancers(part, context.performer.permission))

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        """A Service's own key; none for a Node, because `run` takes up whom its change concerns.

        The feed also brings back our own writes. Such an echo is no news: it must not cut short
        the wait after a failure. While the key is in hand, its reconcile looks for news itself.
        """
        if kind == "Service":
            is_seen_to = self._context.queue.is_in_flight(key) or not self._is_news(key)
            return () if is_seen_to else (key,)
        self._hosts.note_change(key)
        return ()

    async def run(self) -> None:
        """After changes of Nodes, take up the Services whose balancers have other hosts.

        Each of them has its turn, also when Nodes go on changing before it comes.
        """
        while True:
            hosts = await self._hosts.settled()
            for key, given in self._steps.given.items():
                if given != hosts:
                    self._due.add(key)
                    self._context.queue.add(key)

    def on_message(self, message: Message) -> None:
        return

    def object_ref(self, key: str) -> ObjectRef | None:
        service = self._service(key)
        return notes.object_ref(service) if service else None

    def status(self) -> Json:
        return {
            "objects": self._context.store.count("Service"),
            "hosts": len(self._hosts),
            "balancers": len(self._steps.memories),
            "ensured": self._steps.ensured,
            "host_updates": self._steps.updated,
            "deleted": self._steps.deleted,
            "services": glance(self._steps.memories, time.monotonic()),
        }

    def details(self, key: str) -> Json:
        service, memory = self._service(key), self._steps.memories.get(key)
        made, refused = (memory.made, memory.refused) if memory else (None, None)
        there = "being deleted" if service and service.is_being_deleted else "there"
        now = time.monotonic()
        return {
            "service": there if service else "there is none",
            "balancer": f"compared {now - made.at:.0f} s ago" if made else "none that we know of",
            **({"its hosts": ", ".join(made.hosts.names) or "none"} if made else {}),
            **({"refused": f"{now - refused.at:.0f} s ago: {refused.why}"} if refused else {}),
            "hosts it should have": ", ".join(self._hosts.now().names) or "none",
        }

    async def reconcile(self, key: str) -> Result:
        try:
            return await self._come_to_rest(key)
        except Refused:
            self._look_again(key, REFUSED_AGAIN)
            raise
        finally:
            if self._is_news(key):
                self._context.queue.add(key)

    async def _come_to_rest(self, key: str) -> Result:
        for _ in range(MOST_STEPS):
            match self._next_step(key):
                case Rest(message):
                    if key in self._steps.memories:
                        self._look_again(key, AUDIT)
                    return Result(message)
                case Refuse(service, why):
                    told = notes.sync_failed(service, f"failed to ensure load balancer: {why}")
                    self._context.recorder.record(told)
                    raise Refused(why)
                case UpdateHosts() if not (key in self._due or self._hosts.is_at_rest):
                    return Result("waits until the nodes are at rest", False, PATIENCE)
                case Ensure(is_check=True) as check:
                    if self._checks.locked():
                        requeue_after = random.uniform(0.5, 1.5)
                        return Result("waits for its turn to be compared", False, requeue_after)
                    async with self._checks:
                        await self._steps.take(key, check)
                case step:
                    self._due.discard(key)
                    if result := await self._steps.take(key, step):
                        return result
        return Result("does not come to rest: somebody undoes every step", False, UNDONE)

    def _next_step(self, key: str) -> Step:
        service, memory = self._service(key), self._steps.memories.get(key)
        if service:
            self._planned[key] = service
        else:
            self._planned.pop(key, None)
        if memory and service and service.uid == memory.service.uid:
            memory = self._steps.memories[key] = replace(memory, service=service, is_gone=False)
        return plan(service, self._hosts.now(), memory, self._rules, time.monotonic())

    def _is_news(self, key: str) -> bool:
        """Whether the Service is not what was last planned for."""
        return self._service(key) != self._planned.get(key)

    def _look_again(self, key: str, seconds: float) -> None:
        """For what changes in the cloud without a word; spread, so that not all come together."""
        self._context.queue.add_after(key, seconds * random.uniform(1.0, 1.2))

    def _service(self, key: str) -> Service | None:
        raw = self._context.store.get("Service", key)
        return Service(raw) if raw is not None else None
