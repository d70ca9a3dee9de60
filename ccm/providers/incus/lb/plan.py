"""What a balancer's record has to be; nothing in here acts.

Incus takes records whole: a PATCH may end its request without an answer, and no ETag is honoured.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.incus.config import FORWARD
from ccm.providers.incus.ids import CLUSTER_UID, OURS, Cluster
from ccm.providers.incus.lb.request import PORTS, SERVICE, SERVICE_UID, Listener

CHECKS = "healthcheck"
WRITTEN = ("description", "config", "backends", "ports")
"""What of a record goes back to Incus with a change."""


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """A running instance behind a balancer, with its address there."""

    instance: str
    address: str


def address_of(record: Json) -> str:
    return text(record.get("listen_address"))


def config_of(record: Json) -> Mapping[str, str]:
    return mapping(record.get("config"))


def is_marked(record: Json, cluster: Cluster, service_uid: str) -> bool:
    """Whether it is of this cluster and Service; the Service's name alone says nothing."""
    config = config_of(record)
    return config.get(SERVICE_UID) == service_uid and cluster.may_own(config)


def body(
    mode: str,
    config: Mapping[str, str],
    listeners: Sequence[Listener],
    backends: Sequence[Backend],
    current: Json | None = None,
) -> Json:
    """The record with our `config`; what else someone has configured in the one there stays."""
    now = current or {}
    others = {
        key: value
        for key, value in config_of(now).items()
        if key == CLUSTER_UID or not key.startswith((OURS, CHECKS))
    }
    if mode == FORWARD:
        parts = {"ports": _forwarded(listeners, choose(config[SERVICE_UID], backends, now))}
    else:
        parts = _balanced(listeners, sorted(backends))
    return {
        "description": f"Kubernetes Service {config.get(SERVICE, '')}",
        "config": {**others, **config},
        **{key: _with_others(records, now.get(key)) for key, records in parts.items()},
    }


def with_backends(
    mode: str, current: Json, listeners: Sequence[Listener], backends: Sequence[Backend]
) -> Json:
    """The record that is there with other backends."""
    config = {k: v for k, v in config_of(current).items() if k.startswith((OURS, CHECKS))}
    changed = body(mode, config, listeners, backends, current)
    return changed | {"description": text(current.get("description"))}


def backend_name(backend: Backend, port: int) -> str:
    """As node ports differ, each needs a backend of its own."""
    return f"{backend.instance}-{port}"


def backends_of(record: Json) -> list[Backend]:
    """Those that a balancer has; a forward does not name its own."""
    return [
        Backend(text(item.get("name")).rpartition("-")[0], text(item.get("target_address")))
        for item in objects(record.get("backends"))
    ]


def choose(uid: str, backends: Sequence[Backend], current: Json) -> Backend | None:
    """The one behind a forward: the one that is there already, or any, the same for one Service."""
    now = {text(port.get("target_address")) for port in objects(current.get("ports"))}
    kept = [backend for backend in backends if backend.address in now]

    def weight(item: Backend) -> bytes:
        return hashlib.sha256(f"{uid} {item.instance}".encode()).digest()

    return max(kept or backends, key=weight, default=None)


def _balanced(listeners: Sequence[Listener], backends: Sequence[Backend]) -> dict[str, list[Json]]:
    node_ports = sorted({listener.node_port for listener in listeners})
    targets = [
        {
            "name": backend_name(backend, port),
            "description": "",
            "target_address": backend.address,
            "target_port": str(port),
        }
        for backend in backends
        for port in node_ports
    ]
    ports = [
        {
            "description": "",
            "protocol": listener.protocol,
            "listen_port": str(listener.port),
            "target_backend": [backend_name(to, listener.node_port) for to in backends],
        }
        for listener in sorted(listeners)
        if backends  # a port without any is refused
    ]
    return {"backends": targets, "ports": ports}


def _forwarded(listeners: Sequence[Listener], target: Backend | None) -> list[Json]:
    return [
        {
            "description": "",
            "protocol": listener.protocol,
            "listen_port": str(listener.port),
            "target_port": str(listener.node_port),
            "target_address": target.address,
        }
        for listener in sorted(listeners)
        if target
    ]


def _with_others(made: Sequence[Json], current: object) -> list[Json]:
    """With the keys that newer versions have besides, as they are in the ones there."""
    known = {_identity(record): record for record in objects(current)}
    return [{**known.get(_identity(item), {}), **item} for item in made]


def _identity(record: Json) -> tuple[str, ...]:
    """Of a backend its name, of a port what it listens to."""
    return tuple(text(record.get(key)) for key in ("name", "protocol", "listen_port"))


def listeners_mark(record: Json) -> str:
    return text(config_of(record).get(PORTS))
