"""A bare client of an API server, which sends what a case says and hides nothing."""

import itertools
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.support.deadlines import within

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
SERVICES = "/api/v1/namespaces/default/services"
VOLUMES = "/api/v1/persistentvolumes"
EVENTS = "/api/v1/namespaces/default/events"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
FINALIZER = "example.com/hold"
OTHER_FINALIZER = "example.com/other"

STAMP = "2026-01-02T03:04:05Z"

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; a refusal is an answer too."""

    status: int
    body: Any
    headers: dict[str, str]
    path: str = ""  # of what was created

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def refusal(self) -> tuple[int, str | None]:
        """The code and the reason of a Status."""
        assert self.body["kind"] == "Status", self.body
        assert self.body["code"] == self.status
        return self.status, self.body.get("reason")

    @property
    def causes(self) -> set[str]:
        """Which fields a 422 names and why, as "field Reason"; the real server repeats some."""
        assert self.refusal == (422, "Invalid")
        causes = self.body["details"].get("causes", [])
        return {f"{each['field']} {each['reason'].removeprefix('FieldValue')}" for each in causes}

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a watch."""

    type: str
    object: Body

    @property
    def seen(self) -> tuple[str, str]:
        return self.type, self.object["metadata"].get("name", "")


@dataclass(frozen=True, slots=True)
class Watch:
    """An open watch."""

    response: aiohttp.ClientResponse

    async def next(self) -> Event:
        """Return the next event; TimeoutError when none comes."""
        async with within():
            line = await self.response.content.readline()
        assert line, "the watch has ended"
        raw = orjson.loads(line)
        return Event(raw["type"], raw["object"])

    async def rest(self) -> list[Event]:
        """Return what comes until the server ends the watch."""
        async with within():
            lines = [orjson.loads(line) async for line in self.response.content]
        return [Event(raw["type"], raw["object"]) for raw in lines]


class Api:
    """One server under test; what a case creates is removed after it."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        kubeconfig: Path,
        token: str = "",
        ca_file: Path | None = None,
    ) -> None:
        self.url = url
        self.kubeconfig = kubeconfig
        self._session = session
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._ssl = ssl.create_default_context(cafile=ca_file) if ca_file else True
        self._created: list[str] = []
        self._numbers = itertools.count(1)
        self._prefix = f"case-{uuid.uuid4().hex[:8]}"

    def new_name(self) -> str:
        """Return a name that no other case uses; within a case they sort as they were made."""
        return f"{self._prefix}-{next(self._numbers):04}"

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Reply:
        """Send one request; `body` may be bytes, to send what is not JSON."""
        sent = {**self._headers, **(headers or {})}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else orjson.dumps(body)
            sent["Content-Type"] = content_type
        async with self._session.request(
            method, self.url + path, data=data, headers=sent, params=_texts(query), ssl=self._ssl
        ) as response:
            content = await response.read()
        reply = Reply(response.status, _parse(content), dict(response.headers))
        if method in ("POST", "PUT") and reply.status == 201 and "uid" in str(reply.body):
            reply = replace(reply, path=f"{path}/{reply.name}" if method == "POST" else path)
            self._created.append(reply.path)
        return reply

    async def get(self, path: str, **query: Any) -> Reply:
        return await self.call("GET", path, **query)

    async def create(self, path: str, body: Any = None, **query: Any) -> Reply:
        return await self.call("POST", path, body, **query)

    async def replace(self, path: str, body: Any = None, **query: Any) -> Reply:
        return await self.call("PUT", path, body, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Reply:
        return await self.call("DELETE", path, body, **query)

    async def merge(self, path: str, body: Any = None, **query: Any) -> Reply:
        return await self.call("PATCH", path, body, content_type=MERGE, **query)

    async def strategic(self, path: str, body: Any = None, **query: Any) -> Reply:
        return await self.call("PATCH", path, body, content_type=STRATEGIC, **query)

    async def json_patch(self, path: str, *operations: Any, **query: Any) -> Reply:
        return await self.call("PATCH", path, operations, content_type=JSON_PATCH, **query)

    async def try_new(self, path: str, **members: Any) -> Reply:
        """Ask for an object with a name of its own."""
        meta = {"name": self.new_name(), **members.pop("metadata", {})}
        return await self.create(path, {"metadata": meta, **members})

    async def new(self, path: str, **members: Any) -> Reply:
        """Create an object with a name of its own and return the answer, which is 201."""
        reply = await self.try_new(path, **members)
        assert reply.status == 201, reply.body
        return reply

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Watch]:
        """Open a watch; it must be accepted."""
        query.setdefault("timeoutSeconds", 30)
        async with self._session.get(
            self.url + path,
            headers=self._headers,
            params=_texts({"watch": "true", **query}),
            ssl=self._ssl,
        ) as response:
            assert response.status == 200, await response.text()
            yield Watch(response)

    async def clean(self) -> None:
        """Remove what was created, whatever holds it."""
        for path in reversed(self._created):
            await self.delete(path)
            await self.merge(path, {"metadata": {"finalizers": None}})


def _texts(query: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in query.items()}


def _parse(content: bytes) -> Any:
    try:
        return orjson.loads(content) if content else None
    except orjson.JSONDecodeError:
        return content.decode(errors="replace")


# --- the objects that cases create, as small as the server allows


async def new_service(api: Api, **spec: Any) -> Reply:
    spec.setdefault("ports", [{"port": 80}])
    return await api.new(SERVICES, spec=spec)


async def new_balancer(api: Api, **spec: Any) -> Reply:
    return await new_service(api, type="LoadBalancer", **spec)


VOLUME = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteOnce"],
    "csi": {"driver": "example.com", "volumeHandle": "vol-1"},
}


async def new_volume(api: Api, **spec: Any) -> Reply:
    return await api.new(VOLUMES, spec={**VOLUME, **spec})


def address(kind: str, value: str) -> dict[str, str]:
    return {"type": kind, "address": value}


def addresses_of(reply: Reply) -> list[tuple[str, str]]:
    return [(each["type"], each["address"]) for each in reply.body["status"].get("addresses", [])]


def zone_affinity(zone: str) -> dict[str, Any]:
    wanted = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}


def event(api: Api, about: Body, **members: Any) -> Body:
    return {
        "metadata": {"name": api.new_name()},
        "involvedObject": about,
        "reason": "Tested",
        "message": "a message",
        "type": "Normal",
        "source": {"component": "contract"},
        "firstTimestamp": STAMP,
        "lastTimestamp": STAMP,
        "count": 1,
        **members,
    }
