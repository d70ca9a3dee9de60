"""The simulated cloud's routes that carry this cluster's mark; all others are left alone."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any
from urllib.parse import quote

from ccm.errors import Refused, RetryAfter
from ccm.model.cloud import Route
from ccm.model.objects import Node, mapping, text
from ccm.providers.simulated.api import ApiRequest, Conflict, NotFound, SimulatedApi
from ccm.providers.simulated.instances import SCHEME

log = logging.getLogger(__name__)

CLUSTER_TAG = "cluster"
"""The tag that holds the name of the cluster a route belongs to."""
UNLISTED_RETRY = 10.0
"""Seconds until another try, when the cloud says that a route exists and does not list it."""
PREFIX = f"{SCHEME}://"


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """One route as the cloud has it."""

    id: str
    name: str
    cidr: str
    machine_id: str
    is_blackhole: bool
    cluster: str


class SimulatedRoutes:
    """Routes by machine. A route's name is made of what it is, so creating it twice is noticed."""

    def __init__(self, api: SimulatedApi, cluster: str) -> None:
        self._api, self._cluster = api, cluster

    async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """Our routes, from all pages; a target that no Node has is empty."""
        names = {node.provider_id: node.name for node in nodes if node.provider_id}
        return [
            Route(
                cidr=record.cidr,
                node=names.get(PREFIX + record.machine_id, ""),
                id=record.id,
                is_blackhole=record.is_blackhole,
            )
            for record in await self._records()
            if record.cluster == self._cluster
        ]

    async def create(self, node: Node, cidr: str) -> None:
        machine_id = node.provider_id.removeprefix(PREFIX)
        if not node.provider_id or node.is_foreign(SCHEME):
            raise Refused(f"node {node.name} has no machine of this cloud")
        name = f"{self._cluster}-{machine_id}-{cidr}"
        tags = {CLUSTER_TAG: self._cluster}
        body = {"name": name, "cidr": cidr, "machine_id": machine_id, "tags": tags}
        try:
            await self._api.call(
                ApiRequest("CreateRoute", "write", "POST", "/v1/routes", body=body)
            )
        except Conflict as taken:
            await self._adopt(name, cidr, machine_id, taken)

    async def delete(self, route: Route) -> None:
        path = f"/v1/routes/{quote(route.id, safe='')}"
        try:
            await self._api.call(ApiRequest("DeleteRoute", "write", "DELETE", path))
        except NotFound:
            return

    async def _adopt(self, name: str, cidr: str, machine_id: str, taken: Conflict) -> None:
        """Return if what is in the way is the very same route; raise what it is otherwise."""
        network = ip_network(cidr)
        found = [
            record
            for record in await self._records()
            if record.name == name or ip_network(record.cidr) == network
        ]
        if not found:
            raise RetryAfter(f"{taken}, but it is not listed", UNLISTED_RETRY) from taken
        for record in found:
            is_ours = record.cluster == self._cluster and not record.is_blackhole
            if is_ours and record.machine_id == machine_id and ip_network(record.cidr) == network:
                return
        there = found[0]
        owner = f"cluster {there.cluster!r}" if there.cluster else "nobody's mark"
        raise Refused(
            f"{taken}; it leads to machine {there.machine_id} and carries {owner}"
        ) from taken

    async def _records(self) -> Sequence[RouteRecord]:
        """The routes on all pages; one that is not understood is skipped, and so left alone."""
        items = await self._api.items(ApiRequest("ListRoutes", "read", "GET", "/v1/routes"))
        records = [read_route(mapping(item)) for item in items]
        if None in records:
            log.warning("routes not understood", extra={"count": records.count(None)})
        return [record for record in records if record is not None]


def read_route(fields: Mapping[str, Any]) -> RouteRecord | None:
    """A route; None when anything that counts is missing."""
    route_id, machine_id = text(fields.get("id")), text(fields.get("machine_id"))
    cidr, state = text(fields.get("cidr")), text(fields.get("state"))
    try:
        ip_network(cidr)
    except ValueError:
        return None
    if not route_id or not machine_id or not state:
        return None
    cluster = text(mapping(fields.get("tags")).get(CLUSTER_TAG))
    is_blackhole = state == "blackhole"
    return RouteRecord(route_id, text(fields.get("name")), cidr, machine_id, is_blackhole, cluster)
