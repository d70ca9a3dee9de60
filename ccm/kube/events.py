"""Kubernetes Events, sent in the background: deduplicated, bounded in number, never waited for."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Literal, Self

from ccm.decide.budget import Allowances, RoundRobin
from ccm.errors import KubernetesError, NotLeading, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import Json, KubernetesObject, format_time
from ccm.redaction import CUT, safe_text

log = logging.getLogger(__name__)

QUEUE_LIMIT = 10_000
"""Events waiting to be sent; beyond that the oldest of the namespace with most is lost."""
NORMAL_DELAY = 30.0  # seconds for which Normal Events let work go first, at the most
BUSY_INTERVAL = 0.05  # seconds between two looks whether the work is done
REPEAT_INTERVAL = 600.0  # seconds in which an equal Event is not sent again
OBJECT_BURST, OBJECT_REFILL = 25, 300.0
"""So many Events about one object at once, then one in so many seconds, as in client-go: a tenant
who changes a Service for ever has another message each time."""
MESSAGE_LIMIT = 1024  # bytes that an API server takes
NAME_LIMIT = 253  # characters that an API server takes
DEFAULT_NAMESPACE = "default"  # of Events about objects that have none


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The object an Event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""

    @classmethod
    def of(cls, obj: KubernetesObject) -> Self:
        """That of a Node, a Service or a PersistentVolume."""
        return cls("v1", obj.KIND, obj.name, obj.uid, obj.namespace)


@dataclass(frozen=True, slots=True)
class Event:
    """What the people who look at an object should know."""

    object_ref: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _message(self.message))


def _message(text: str) -> str:
    """As much of the text as an Event may have (upstream: NoteLengthLimit)."""
    shown = safe_text(text, MESSAGE_LIMIT)
    data = shown.encode()
    if len(data) <= MESSAGE_LIMIT:
        return shown
    return data[: MESSAGE_LIMIT - len(CUT.encode())].decode(errors="ignore") + CUT


def _name(object_name: str, number: int) -> str:
    """That of an Event, which begins as its object's, however long that is."""
    end = f".{number:x}"
    return object_name[: NAME_LIMIT - len(end)].rstrip("-.") + end


class EventRecorder:
    """Sends Events one at a time, as Events of `component`; namespaces take turns.

    While `is_busy`, those of type Normal wait: an Event costs the API server a third of a write.
    """

    def __init__(
        self,
        kube: Kube,
        component: str,
        instance: str,
        repeat_interval: float = REPEAT_INTERVAL,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_busy = is_busy
        self._kube, self._component, self._instance = kube, component, instance
        self._repeat_interval = repeat_interval
        self._waiting: OrderedDict[Event, float] = OrderedDict()  # since when
        self._turns = RoundRobin[Event]()
        self._urgent = RoundRobin[Event]()  # those that are not Normal, by name of their object
        self._sent: OrderedDict[Event, float] = OrderedDict()
        self._allowances = Allowances[ObjectRef](OBJECT_BURST, OBJECT_REFILL, QUEUE_LIMIT)
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        # Event names must differ between restarts: begin at the clock, as upstream does.
        self._numbers = count(time.time_ns())
        self.lost = 0

    def record(self, event: Event) -> None:
        """Queue `event` unless an equal one was recorded a short while ago; returns at once.

        Of too many about one object the rest is lost, and counted.
        """
        last = self._sent.get(event)
        if event in self._waiting or (
            last is not None and time.monotonic() - last < self._repeat_interval
        ):
            return
        # Under one name, as a kubelet may register its Node again for ever.
        if self._allowances.take(replace(event.object_ref, uid=""), time.monotonic()):
            self.lost += 1
            return
        self._waiting[event] = time.monotonic()
        self._turns.add(event.object_ref.namespace, event)
        if event.type != "Normal":
            self._urgent.add(event.object_ref.name, event)
        if len(self._waiting) > QUEUE_LIMIT:
            self._take(self._turns.oldest_of_most())
            self.lost += 1
        self._idle.clear()
        self._wake.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(self) -> None:
        """Send for ever; an Event that cannot be sent is logged and let go."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                if event := self._next():
                    await self.send(event, time.monotonic() - self._take(event))
                else:
                    await asyncio.sleep(BUSY_INTERVAL)
            self._idle.set()

    def _next(self) -> Event | None:
        """The first Event that may be sent now."""
        oldest = next(iter(self._waiting.values()))
        if not self._is_busy() or time.monotonic() - oldest > NORMAL_DELAY:
            return self._turns.next_item()
        return self._urgent.next_item() if self._urgent else None

    def _take(self, event: Event) -> float:
        """Since when it was waiting; it is not any more."""
        if event.type != "Normal":
            self._urgent.take(event.object_ref.name, event)
        self._turns.take(event.object_ref.namespace, event)
        return self._waiting.pop(event)

    async def drain(self, seconds: float) -> None:
        """Wait until everything is sent, but not longer than `seconds`; nothing goes first now."""
        self._is_busy = lambda: False
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("events not sent before the stop", extra={"count": len(self._waiting)})

    async def send(self, event: Event, age: float = 0.0) -> None:
        """Send an Event of so many seconds ago; what cannot be sent is counted, logged, let go."""
        self._sent[event] = time.monotonic()
        if len(self._sent) > QUEUE_LIMIT:
            self._sent.popitem(last=False)
        namespace = event.object_ref.namespace or DEFAULT_NAMESPACE
        try:
            body = self._body(event, namespace, datetime.now(UTC) - timedelta(seconds=age))
            await self._kube.post(f"/api/v1/namespaces/{namespace}/events", body)
        except NotLeading:
            self.lost += 1  # without a line for each: there may be thousands
        except (KubernetesError, Unreachable) as error:
            self.lost += 1
            if isinstance(error, Unreachable) or error.status >= 500:
                self._sent.pop(event, None)  # it is news when it is recorded again
            log.warning("event not sent", extra={"reason": event.reason, "error": str(error)})

    def _body(self, event: Event, namespace: str, moment: datetime) -> Json:
        at = format_time(moment)
        object_ref = {
            "apiVersion": event.object_ref.api_version,
            "kind": event.object_ref.kind,
            "name": event.object_ref.name,
            "uid": event.object_ref.uid,
            **({"namespace": event.object_ref.namespace} if event.object_ref.namespace else {}),
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": _name(event.object_ref.name, next(self._numbers)),
                "namespace": namespace,
            },
            "involvedObject": object_ref,
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
