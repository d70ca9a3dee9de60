"""The Lease object on the API server: get it, hold it, release it."""

import math
import socket
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from ccm.decide.lease import LeaderElectionRecord
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube, about
from ccm.kube.events import Event, EventRecorder, ObjectRef
from ccm.model.objects import Json, mapping, resource_version, text
from ccm.model.rbac import PolicyRule
from ccm.model.status import LeaseHolder

_GROUP = "coordination.k8s.io"
_API_VERSION = f"{_GROUP}/v1"

MAX_HOLDERS = 10  # of whom we know that they led
COMPONENT = "cloud-controller-manager"  # the source of our Events, as upstream names it


def policy_rules(namespace: str, names: Iterable[str]) -> tuple[PolicyRule, ...]:
    """What these Leases need; RBAC cannot restrict the name of a new object."""
    purpose = "leader election"
    both = f"{purpose}; a freeze of deletions"
    return (
        PolicyRule("leases", ("create",), purpose, _GROUP, namespace),
        PolicyRule("leases", ("get", "update"), both, _GROUP, namespace, tuple(names)),
    )


def new_identity() -> str:
    """Our `holderIdentity`: host name and a random part, as upstream writes it."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def _now() -> str:
    # The API server accepts exactly six fraction digits here.
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class LeaseClient:
    """One Lease by name. A write carries the version it replaces, so that one of two wins."""

    kube: Kube
    namespace: str
    name: str
    identity: str
    duration: float

    def __post_init__(self) -> None:
        self._raw: Json = {}
        self.annotations: Mapping[str, str] = {}  # as last seen; a Lease recreated has them, too
        self._annotated = 0  # the version that had them
        self.holders: deque[LeaseHolder] = deque(maxlen=MAX_HOLDERS)  # seen since the start
        self._collection = f"/apis/{_API_VERSION}/namespaces/{self.namespace}/leases"
        self._recorder = EventRecorder(self.kube.lane(), COMPONENT, self.identity)

    @property
    def path(self) -> str:
        """Where the Lease is at the API server."""
        return f"{self._collection}/{self.name}"

    async def get(self, timeout: float) -> LeaderElectionRecord | None:
        """The Lease as it is now; None when there is none."""
        try:
            raw = await self.kube.request("GET", self.path, timeout=timeout)
        except KubernetesError as error:
            if not error.is_gone:
                raise
            self._raw = {}
            return None
        return self._remember(raw)

    async def create(self, timeout: float) -> LeaderElectionRecord:
        """Create a Lease that we hold; 409 when someone was faster."""
        body: Json = {
            "apiVersion": _API_VERSION,
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                **({"annotations": self.annotations} if self.annotations else {}),
            },
            "spec": self._spec(acquired=_now(), transitions=0),
        }
        return self._written(await self.kube.post(self._collection, body, timeout), body["spec"])

    async def update(self, timeout: float) -> LeaderElectionRecord:
        """Acquire or renew it; 409 when it changed since we read it."""
        old = mapping(self._raw.get("spec"))
        transitions = _number(old.get("leaseTransitions"))
        if old.get("holderIdentity") == self.identity:
            acquired = text(old.get("acquireTime")) or _now()
        else:
            acquired, transitions = _now(), transitions + 1
        return await self._replace(self._spec(acquired, transitions), timeout)

    async def release(self, timeout: float) -> None:
        """Write that it has no holder, so that a successor need not wait for it to expire."""
        old = mapping(self._raw.get("spec"))
        spec = self._spec(_now(), _number(old.get("leaseTransitions")))
        await self._replace(spec | {"holderIdentity": "", "leaseDurationSeconds": 1}, timeout)

    def object_ref(self) -> ObjectRef:
        """The Lease as the object of an Event; without a UID before it was read."""
        uid = text(mapping(self._raw.get("metadata")).get("uid"))
        return ObjectRef(_API_VERSION, "Lease", self.name, uid, self.namespace)

    async def record_event(self, what: str, warning: str = "") -> None:
        """Send an Event on the Lease that says what happened to us: `became leader`, say.

        `warning` is the reason of one that people should look at.
        """
        kind: Literal["Warning", "Normal"] = "Warning" if warning else "Normal"
        reason = warning or "LeaderElection"
        await self._recorder.send(Event(self.object_ref(), kind, reason, f"{self.identity} {what}"))

    def _spec(self, acquired: str, transitions: int) -> Json:
        return {
            "holderIdentity": self.identity,
            # Whole seconds only, and never less than the others must wait for us.
            "leaseDurationSeconds": math.ceil(self.duration),
            "acquireTime": acquired,
            "renewTime": _now(),
            "leaseTransitions": transitions,
        }

    async def _replace(self, spec: Json, timeout: float) -> LeaderElectionRecord:
        body = self._raw | {"spec": {**mapping(self._raw.get("spec")), **spec}}
        return self._written(await self.kube.put(self.path, body, timeout), spec)

    def _written(self, raw: Json, spec: Json) -> LeaderElectionRecord:
        """The answer to a write of ours; one that does not have it is no proof that we lead."""
        record = self._remember(raw)
        if (record.holder, record.renewed) != (spec["holderIdentity"], spec["renewTime"]):
            raise Unreachable(f"{self.path}: the answer to our write is not what we wrote")
        self.take_annotations(raw)
        return record

    def take_annotations(self, raw: Json) -> None:
        """They are those of this Lease from now on."""
        self.annotations = mapping(mapping(raw.get("metadata")).get("annotations"))
        self._annotated = resource_version(raw)

    def _remember(self, raw: Json) -> LeaderElectionRecord:
        self._raw = about(self.path, raw)
        spec, meta = mapping(raw.get("spec")), mapping(raw.get("metadata"))
        if resource_version(raw) >= self._annotated:  # a proxy may have kept one from before
            self.take_annotations(raw)
        self._see_holder(spec)
        return LeaderElectionRecord(
            holder=text(spec.get("holderIdentity")),
            duration=float(_number(spec.get("leaseDurationSeconds")) or self.duration),
            renewed=text(spec.get("renewTime")),
            transitions=_number(spec.get("leaseTransitions")),
            version=text(meta.get("resourceVersion")),
        )

    def _see_holder(self, spec: Mapping[str, Any]) -> None:
        holder: LeaseHolder = {
            "identity": text(spec.get("holderIdentity")),
            "since": text(spec.get("acquireTime")),
            "transitions": _number(spec.get("leaseTransitions")),
        }
        if holder["identity"] and holder not in self.holders:
            self.holders.append(holder)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
