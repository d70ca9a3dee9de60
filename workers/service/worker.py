"""The service duty: what it wants, how each planned step is performed, and what people are told."""

import asyncio
import logging
import random
import time
from collections.abc import Iterable
from dataclasses import replace

from ccm.bus.frames import Message
from ccm.cloud.interface import LoadBalancers
from ccm.decide.backoff import Backoff
from ccm.errors import CloudError, KubernetesError, Refused, RetryAfter
from ccm.kube.events import Note, ObjectRef
from ccm.model.node import Json
from ccm.model.projection import Path, Want
from ccm.model.service import Service
from ccm.settings import Settings
from workers.apply import Patch
from workers.duty import Duty, Outcome, Tools
from workers.service import notes, vanished
from workers.service.balancers import Balancers
from workers.service.concerns import SPEC, concerns, ingress_json
from workers.service.hosts import Hosts
from workers.service.hostset import HostSet
from workers.service.patches import patch_for, path_of
from workers.service.plan import (
    AUDIT,
    AddFinalizer,
    Confirm,
    DeleteBalancer,
    Ensure,
    Forget,
    LookForBalancer,
    Made,
    Memory,
    NoFrom,
    Refuse,
    RemoveFinalizer,
    Rest,
    Rules,
    SetStatus,
    Step,
    UpdateHosts,
    Write,
    hosted,
    plan,
)
from workers.service.predicates import EXCLUDE_LABEL, LEAVING_TAINT

log = logging.getLogger(__name__)

COMPONENT = "service-controller"
BACKOFF = Backoff(first=5.0, most=300.0, jitter=0.0)  # upstream's, exactly
STEPS = 20  # of one reconcile; more means that somebody undoes them
REPLAN = (409, 422)  # the object is not what it was

_META = ("name", "namespace", "uid", "annotations", "finalizers", "deletionTimestamp")
_NODE: tuple[Path, ...] = (
    ("metadata", "name"),
    ("metadata", "uid"),
    ("metadata", "deletionTimestamp"),
    ("metadata", "labels", EXCLUDE_LABEL),
    ("spec", "providerID"),
    ("spec", "taints", ("key", LEAVING_TAINT)),
    ("status", "addresses"),
)

WANTS = (
    Want(
        "Service",
        (
            *(("metadata", name) for name in _META),
            *(("spec", name) for name in SPEC),
            ("status", "loadBalancer"),
        ),
    ),
    Want("Node", _NODE),
)


def duty(tools: Tools) -> Duty | None:
    """The service duty of this process."""
    part = tools.provider.load_balancers
    return ServiceDuty(tools, part) if part else None


def concurrency(settings: Settings) -> int:
    return settings.concurrent_service_syncs


class ServiceDuty:
    """Keeps one balancer for each Service that wants one; all work on a Service is one key's.

    So host updates, ensures and deletions of one balancer never overlap.
    """

    def __init__(self, tools: Tools, part: LoadBalancers) -> None:
        self._tools = tools
        self._cloud = Balancers(part, tools.performer.permission)
        self._rules = Rules(tools.settings.load_balancer_classes, part.honours)
        self._hosts = HostSet(tools.store, tools.provider.scheme)
        self._memories: dict[str, Memory] = {}
        self._given: dict[str, Hosts] = {}  # what each balancer was last to get, right or wrong
        self._rejected: dict[str, Patch] = {}
        self._ensured = self._updated = self._deleted = 0

    def keys_for(self, kind: str, key: str) -> Iterable[str]:
        """A Node's change is announced by `run`, together with those that come close to it."""
        if kind == "Service":
            return (key,)
        self._hosts.note_change()
        return ()

    async def run(self) -> None:
        """After changes of Nodes, take up the Services whose balancers have other hosts."""
        while True:
            hosts = await self._hosts.settled()
            for key, given in self._given.items():
                if given != hosts:
                    self._tools.queue.add(key)

    def hear(self, message: Message) -> None:
        return

    def about(self, key: str) -> ObjectRef | None:
        service = self._service(key)
        return notes.about(service) if service else None

    def facts(self) -> Json:
        return {
            "objects": self._tools.store.count("Service"),
            "hosts": len(self._hosts.now().nodes),
            "balancers": len(self._memories),
            "ensured": self._ensured,
            "host_updates": self._updated,
            "deleted": self._deleted,
        }

    async def reconcile(self, key: str) -> Outcome:
        for _ in range(STEPS):
            service, hosts = self._service(key), self._hosts.now()
            memory = self._memories.get(key)
            if memory and service and service.uid == memory.service.uid:
                memory = self._memories[key] = replace(memory, service=service)
            match plan(service, hosts, memory, self._rules, time.monotonic()):
                case Rest(sentence):
                    if memory:
                        self._come_back(key)
                    return Outcome(sentence)
                case Refuse(why):
                    if service:
                        self._tell(notes.sync_failed(service, f"failed to ensure load balancer: {why}"))
                    self._come_back(key)
                    raise Refused(why)
                case step:
                    await self._take(key, step, service, hosts)
        return Outcome("does not come to rest: somebody undoes what is done", False, again_in=60.0)
