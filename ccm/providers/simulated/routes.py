"""The simulated cloud's routes that carry this cluster's mark; all others are left alone."""

import logging
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Any
from urllib.parse import quote

from ccm.errors import Conflict, NotFound, Refused, RetryAfter
from ccm.model.cloud import Route
from ccm.model.objects import Node, mapping, text
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.instances import SCHEME

log = logging.getLogger(__name__)

CLUSTER_TAG = "cluster"
"""The tag that holds the name of the cluster a route belongs to."""
UNLISTED_RETRY = 10.0
"""Seconds until another try, when the cloud says that a route exists and does not list it."""
PREFIX = f"{SCHEME}://"


class SimulatedRoutes:
    """Routes by machine. A route's name is made of what it is, so creating it twice is noticed."""

    def __init__(self, api: SimulatedApi, cluster: str) -> None:
        self._api, self._cluster = api, cluster

    async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """Our routes, from all pages; a target that no Node has is empty."""
        names = {node.provider_id: node.name for node in nodes if node.provider_id}
        return [
            Route(
                cidr=record["cidr"],
                node=names.get(PREFIX + record["machine_id"], ""),
                id=record["id"],
                is_blackhole=record["state"] == "blackhole",
                is_marked=True,
            )
            for record in await self._records()
            if cluster_of(record) == self._cluster
        ]

    async def create(self, node: Node, cidr: str) -> None:
        machine_id = node.provider_id.removeprefix(PREFIX)
        if not node.provider_id.startswith(PREFIX):
            raise Refused(f"node {node.name} has no machine of this cloud")
        name = f"{self._cluster}-{machine_id}-{cidr}"
        tags = {CLUSTER_TAG: self._cluster}
        body = {"name": name, "cidr": cidr, "machine_id": machine_id, "tags": tags}
        try:
            await self._api.write("CreateRoute", "POST", "/v1/routes", body)
        except Conflict as taken:
            await self._adopt(name, cidr, machine_id, taken)

    async def delete(self, route: Route) -> None:
        path = f"/v1/routes/{quote(route.id, safe='')}"
        try:
            await self._api.write("DeleteRoute", "DELETE", path)
        except NotFound:
            return

    async def _adopt(self, name: str, cidr: str, machine_id: str, taken: Conflict) -> None:
        """Return if what is in the way is the very same route; raise what it is otherwise."""
        network = ip_network(cidr)
        found = [
            record
            for record in await self._records()
            if record.get("name") == name or ip_network(record["cidr"]) == network
        ]
        if not found:
            raise RetryAfter(f"{taken}, but it is not listed", UNLISTED_RETRY) from taken
        for record in found:
            is_ours = cluster_of(record) == self._cluster and record["state"] != "blackhole"
            is_same = record["machine_id"] == machine_id and ip_network(record["cidr"]) == network
            if is_ours and is_same:
                return
        cluster = cluster_of(found[0])
        owner = f"cluster {cluster!r}" if cluster else "no mark"
        raise Refused(
            f"{taken}; it leads to machine {found[0]['machine_id']} and carries {owner}"
        ) from taken

    async def _records(self) -> Sequence[Mapping[str, Any]]:
        """The routes on all pages; one that is not understood is skipped, and so left alone."""
        records = [mapping(item) for item in await self._api.items("ListRoutes", "/v1/routes")]
        understood = [record for record in records if is_route(record)]
        if len(understood) < len(records):
            count = len(records) - len(understood)
            log.warning("routes not understood", extra={"count": count})
        return understood


def is_route(record: Mapping[str, Any]) -> bool:
    """Whether the record has all that counts in a route."""
    try:
        ip_network(text(record.get("cidr")))
    except ValueError:
        return False
    return all(text(record.get(field)) for field in ("id", "machine_id", "state"))


def cluster_of(record: Mapping[str, Any]) -> str:
    """The cluster whose mark a route carries; empty without one."""
    return text(mapping(record.get("tags")).get(CLUSTER_TAG))
