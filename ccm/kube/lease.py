"""The Lease object on the API server: read it, and write that we hold or leave it."""

import math
import socket
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from ccm.decide.lease import LeaseRecord
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.kube.events import Event, EventRecorder, ObjectRef
from ccm.model.objects import Json, mapping, text
from ccm.model.rbac import PolicyRule

_GROUP = "coordination.k8s.io/v1"

COMPONENT = "cloud-controller-manager"  # the source of our Events, as upstream names it


def rights(namespace: str, names: Iterable[str]) -> tuple[PolicyRule, ...]:
    """What these Leases need; RBAC cannot say which name a new object may have."""
    group, purpose = "coordination.k8s.io", "leader election"
    return (
        PolicyRule("leases", ("create",), purpose, group, namespace),
        PolicyRule("leases", ("get", "update"), purpose, group, namespace, tuple(names)),
    )


def new_identity() -> str:
    """Who we are in the Lease: host name and a random part, as upstream writes it."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def _stamp() -> str:
    # The API server accepts exactly six fraction digits here.
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class LeaseClient:
    """One Lease by name. Every write carries the version that it replaces, so that one wins."""

    kube: Kube
    namespace: str
    name: str
    identity: str
    duration: float

    def __post_init__(self) -> None:
        self._raw: Json = {}
        self._collection = f"/apis/{_GROUP}/namespaces/{self.namespace}/leases"
        self._recorder = EventRecorder(self.kube, COMPONENT, self.identity)

    async def read(self, timeout: float) -> LeaseRecord | None:
        """The Lease as it is now; None when there is none."""
        try:
            raw = await self.kube.request("GET", f"{self._collection}/{self.name}", timeout=timeout)
        except KubernetesError as error:
            if error.status != 404:
                raise
            self._raw = {}
            return None
        return self._remember(raw)

    async def create(self, timeout: float) -> LeaseRecord:
        """Make a Lease that we hold; 409 when somebody was faster."""
        body = {
            "apiVersion": _GROUP,
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._spec(acquired=_stamp(), transitions=0),
        }
        return self._remember(await self.kube.post(self._collection, body, timeout))

    async def hold(self, timeout: float) -> LeaseRecord:
        """Write that we hold it now; 409 when it changed since we read it."""
        old = mapping(self._raw.get("spec"))
        transitions = _number(old.get("leaseTransitions"))
        if old.get("holderIdentity") == self.identity:
            acquired = text(old.get("acquireTime")) or _stamp()
        else:
            acquired, transitions = _stamp(), transitions + 1
        return await self._replace(self._spec(acquired, transitions), timeout)

    async def release(self, timeout: float) -> None:
        """Write that nobody holds it, so that a successor need not wait for it to run out."""
        old = mapping(self._raw.get("spec"))
        spec = self._spec(_stamp(), _number(old.get("leaseTransitions")))
        await self._replace(spec | {"holderIdentity": "", "leaseDurationSeconds": 1}, timeout)

    def object_ref(self) -> ObjectRef:
        """The Lease as the object of an Event; without a UID before it was read."""
        uid = text(mapping(self._raw.get("metadata")).get("uid"))
        return ObjectRef(_GROUP, "Lease", self.name, uid, self.namespace)

    async def announce(self, what: str) -> None:
        """Tell people, by an Event on the Lease, what became of us: `became leader`, say."""
        await self._recorder.send(
            Event(self.object_ref(), "Normal", "LeaderElection", f"{self.identity} {what}")
        )

    def _spec(self, acquired: str, transitions: int) -> Json:
        return {
            "holderIdentity": self.identity,
            # Whole seconds only, and never less than the others must wait for us.
            "leaseDurationSeconds": math.ceil(self.duration),
            "acquireTime": acquired,
            "renewTime": _stamp(),
            "leaseTransitions": transitions,
        }

    async def _replace(self, spec: Json, timeout: float) -> LeaseRecord:
        body = self._raw | {"spec": {**mapping(self._raw.get("spec")), **spec}}
        return self._remember(await self.kube.put(f"{self._collection}/{self.name}", body, timeout))

    def _remember(self, raw: Json) -> LeaseRecord:
        self._raw = raw
        spec, meta = mapping(raw.get("spec")), mapping(raw.get("metadata"))
        return LeaseRecord(
            holder=text(spec.get("holderIdentity")),
            duration=float(_number(spec.get("leaseDurationSeconds")) or self.duration),
            renewed=text(spec.get("renewTime")),
            transitions=_number(spec.get("leaseTransitions")),
            version=text(meta.get("resourceVersion")),
        )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
