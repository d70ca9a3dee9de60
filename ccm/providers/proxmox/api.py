"""The way to one Proxmox cluster: one HTTP request at a time through the gate, reads only."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson

from ccm import __version__
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.reloading import ReloadingClient, what_broke
from ccm.errors import CloudError, Denied, Refused, Throttled
from ccm.http import HttpResponse
from ccm.model.objects import mapping, text
from ccm.printable import printable
from ccm.providers.proxmox.config import TOKEN_ID, TOKEN_SECRET, Cluster
from ccm.tls import Server

READ, AGENT = "read", "agent"
QUOTAS = {READ: Quota(per_second=20.0, burst=60), AGENT: Quota(per_second=10.0, burst=20)}
"""Proxmox has no limits but the three processes that answer on a host: what we leave it."""
IDLE_TIMEOUT = 4.0  # seconds; pveproxy closes idle connections after 5
MAX_SAID = 300  # characters of an error


class NotFound(Refused):
    """A host's word that it has no such machine; another host may have it."""


class _NoConnection(CloudError):
    """The request did not get an answer from this host, and another may be asked."""


class ProxmoxApi:
    """Requests to one cluster, by any of its hosts: one that breaks off is left for the next.

    Raises `Denied`, `NotFound`, `Throttled`, `Refused` (what it will never take), and `CloudError`
    for everything else: no answer, an unreadable one, other errors of the server.
    """

    def __init__(self, cluster: Cluster, gate: Gate, caller: str) -> None:
        self.region = cluster.region
        self._cluster, self._gate = cluster, gate
        self._agent = f"ccm-supervisor/{__version__} {caller}"
        self._clients = [
            ReloadingClient(Server(url, cluster.ca_file), IDLE_TIMEOUT) for url in cluster.urls
        ]

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()

    async def get(self, operation: str, path: str, budget: str = READ, **query: str) -> Any:
        """The data of the answer to a GET."""
        target = f"/api2/json{path}?{urlencode(query)}" if query else f"/api2/json{path}"
        called = f"{self.region}: {operation}"

        async def send() -> Any:
            return read_answer(called, await self._send(called, target))

        for _ in self._clients[1:]:
            try:
                return await self._gate.call(operation, budget, send, is_write=False)
            except _NoConnection:
                continue
        return await self._gate.call(operation, budget, send, is_write=False)

    async def _send(self, operation: str, target: str) -> HttpResponse:
        """A host that gives no answer, in time or at all, is asked last from then on."""
        client, answer = self._clients[0], None
        headers = {"User-Agent": self._agent, "Authorization": self._authorization(operation)}
        try:
            http = client.current()
            answer = await http.request("GET", target, headers.items(), may_retry=True)
        except (OSError, ValueError) as broken:
            why = what_broke(broken, "ca_file")
            raise _NoConnection(f"{operation}: {client.url}: {why}") from broken
        finally:
            if answer is None and client is self._clients[0]:
                self._clients.append(self._clients.pop(0))
        return answer

    def _authorization(self, operation: str) -> str:
        """The token as its files have it now."""
        cluster = self._cluster
        try:
            token = _content(cluster.token_id_file, TOKEN_ID) or cluster.token_id
            secret = _content(cluster.token_secret_file, TOKEN_SECRET) or cluster.token_secret
        except (OSError, ValueError) as wrong:
            raise Denied(f"{operation}: the token cannot be read: {wrong}") from wrong
        return f"PVEAPIToken={token}={secret}"


def _content(file: str, form: re.Pattern[str]) -> str:
    """What is in a file of the token; empty without a file."""
    content = Path(file).read_text().strip() if file else ""
    if file and not form.fullmatch(content):
        raise ValueError(f"{file} holds none")
    return content


def read_answer(operation: str, answer: HttpResponse) -> Any:
    """The data in a success; raises what anything else means."""
    try:
        content = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        content = None
    status = answer.status
    if not 200 <= status < 300:
        # What is wrong stands in the status line, and newer versions repeat it in the body.
        told = text(mapping(content).get("message")).strip()
        said = " ".join(dict.fromkeys((answer.reason, told)))
        message = printable(f"{operation}: {status} {said}".strip()[:MAX_SAID])
        raise to_cloud_error(message, status, answer.retry_after)
    if not isinstance(content, dict) or content.get("data") is None:
        raise CloudError(f"{operation}: the answer is none of Proxmox'")
    return content["data"]


def to_cloud_error(message: str, status: int, retry_after: float | None = None) -> CloudError:
    """What an error of Proxmox means for the caller; to most it says 500."""
    if status in (401, 403):
        return Denied(message)
    if status == 429:
        return Throttled(message, retry_after)
    if status == 500 and "does not exist" in message:
        return NotFound(message)
    return Refused(message) if 400 <= status < 500 else CloudError(message)
