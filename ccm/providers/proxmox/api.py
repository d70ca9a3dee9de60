"""The way to one Proxmox cluster: one HTTP request at a time through the gate, reads only."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ccm.cloud.credentials import credentials_of
from ccm.cloud.failures import Unsent
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.json_api import JsonApi, Request
from ccm.errors import CloudError, NotFound, Refused, Unanswered
from ccm.http import HttpResponse, request_target
from ccm.model.objects import mapping, text
from ccm.providers.proxmox.config import Cluster
from ccm.tls import Server

READ, AGENT = "read", "agent"
ASK_GUEST = "GetGuestAddresses"
QUOTAS = {READ: Quota(per_second=20.0, burst=60), AGENT: Quota(per_second=10.0, burst=20)}
"""Proxmox has no limits but the three processes that answer on a host: what we leave it."""
AGENT_TIMEOUT = 5.0  # seconds; shorter than any other call, as a guest decides when it answers
IDLE_TIMEOUT = 4.0  # seconds; pveproxy closes idle connections after 5


class ProxmoxApi(JsonApi):
    """Requests to one cluster, by any of its hosts: one that breaks off is left for the next."""

    cloud, ca_keys = "Proxmox", "ca_file"

    def __init__(self, cluster: Cluster, gate: Gate, caller: str) -> None:
        servers = (Server(url, cluster.ca_file) for url in cluster.urls)
        super().__init__(
            gate,
            caller,
            *servers,
            credentials=credentials_of(*cluster.secrets),
            name=cluster.region,
            idle_timeout=IDLE_TIMEOUT,
        )
        self._cluster, self._urls = cluster, list(cluster.urls)

    @property
    def region(self) -> str:
        """The region that the cluster is."""
        return self._cluster.region

    async def get(self, operation: str, path: str, budget: str = READ, **query: str) -> Any:
        """The data of the answer to a GET."""
        request = Request(operation, budget, "GET", request_target(f"/api2/json{path}", query))
        for _ in self._urls[1:]:
            try:
                return await self.request(request)
            except (Unsent, Unanswered):
                continue
        return await self.request(request)

    async def send(self, request: Request) -> HttpResponse:
        """A host that gives no answer, in time or at all, is asked last from then on.

        Of an agent that gives none this says nothing: its guest decides when it answers.
        """
        url = self._urls[0]
        try:
            async with asyncio.timeout(AGENT_TIMEOUT if request.budget == AGENT else None):
                return await super().send(replace(request, url=url))
        except TimeoutError as error:
            raise Refused(f"{self.named(request.operation)}: the agent does not answer") from error
        except BaseException:  # also when the call is given up
            if url == self._urls[0]:
                self._urls.append(self._urls.pop(0))
            raise

    def authorization(self, credentials: tuple[str, str]) -> Mapping[str, str]:
        return {"Authorization": "PVEAPIToken={}={}".format(*credentials)}

    def error_text(self, content: Any, response: HttpResponse) -> str:
        """What is wrong stands in the status line, and newer versions repeat it in the body."""
        reported = text(mapping(content).get("message")).strip()
        return " ".join(dict.fromkeys((response.reason, reported)))

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        """To most it says 500; a 404 is about the path. What an agent answers is its guest's."""
        if response.status == 500 and f"{ASK_GUEST}: " in message:
            return Refused(message)
        if response.status == 500 and "does not exist" in message:
            return NotFound(message)
        if response.status == 404:
            return Refused(message)
        return super().error(message, content, response)

    def result(self, operation: str, content: Any) -> Any:
        if (data := mapping(content).get("data")) is None:
            raise self.unreadable(operation)
        return data
