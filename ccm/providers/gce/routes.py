"""Routes to pod networks: one of Google's for each, by upstream's names and description."""

import re
from collections.abc import Collection, Mapping, Sequence
from uuid import NAMESPACE_OID, uuid5

from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError, Conflict, NotFound, Refused, RetryAfter
from ccm.model.cloud import UUID, Route
from ccm.model.objects import Json, Node, objects, text
from ccm.providers.gce import ids
from ccm.providers.gce.api import RACE_RETRY, GceApi
from ccm.providers.gce.ids import path_of_url

DESCRIPTION = "k8s-node-route"
PRIORITY = 1000
NAME_LIMIT = 26  # characters of the cluster's name, so that a UUID fits behind
NO_FORWARDING, NO_INSTANCE = "NEXT_HOP_CANNOT_IP_FORWARD", "NEXT_HOP_INSTANCE_NOT_FOUND"


class GceRoutes:
    """Routes of the cluster's network that are called after the cluster and a Node's UID."""

    def __init__(self, api: GceApi, cluster_name: str) -> None:
        self._api, self._prefix = api, f"{cluster_name[:NAME_LIMIT]}-"
        self._own = re.compile(re.escape(self._prefix) + UUID.pattern)
        self._shared_list = SharedRead(self._list)

    async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        """As the interface. The UID of a Node in the name proves whose a route is."""
        project = (await self._api.place()).project
        refs = {node.name: ids.instance_of(node.provider_id) for node in nodes}
        by_path = {ref.path: name for name, ref in refs.items() if ref}
        uids = {node.uid for node in nodes}
        records = await self._shared_list()
        own = (record for record in records if self._is_own(record))
        return [self._route(record, by_path, uids, project) for record in own]

    async def create(self, node: Node, cidr: str) -> None:
        """As the interface; a route of the Node's name that leads elsewhere is replaced.

        Raises `CloudError` once where the instance drops what is not for it.
        """
        place, ref = await self._api.place(), ids.instance_of(node.provider_id)
        if ref is None or ref.project != place.project:
            raise Refused(f"Node {node.name} has no instance of {place.project} to route to")
        body: Json = {
            "name": f"{self._prefix}{node.uid}",
            "destRange": cidr,
            "nextHopInstance": ref.path,
            "network": place.network,
            "priority": PRIORITY,
            "description": DESCRIPTION,
        }
        second = f"{self._prefix}{uuid5(NAMESPACE_OID, f'{node.uid} {cidr}')}"
        for record in await self._shared_list():
            name, hop = text(record.get("name")), _hop(record, place.project)
            is_nodes = self._is_own(record) and name in (body["name"], second)
            if record.get("destRange") == cidr:
                if self._is_own(record) and hop == ref.path:
                    return
                if not is_nodes:
                    raise Refused(f"{cidr} is routed by {name} already: delete that first")
            if is_nodes and hop != ref.path:
                await self._delete(name)
            elif name == body["name"]:
                body["name"] = second
        try:
            operation = await self._api.change("routes.insert", "POST", await self._path(), body)
        except Conflict as conflict:
            raise RetryAfter(str(conflict), RACE_RETRY) from conflict
        if NO_FORWARDING in _warnings(operation):
            raise CloudError(
                f"instance {ref.name} drops what Pods send: it was made without canIpForward; "
                "recreate it with --can-ip-forward"
            )

    async def delete(self, route: Route) -> None:
        """As the interface. Another list has to have it: one may mix up names."""
        named = [item for item in await self._shared_list() if item.get("name") == route.id]
        if any(item.get("destRange") != route.cidr for item in named):
            raise CloudError(f"routes.list: two answers about {route.id} differ: asked again")
        await self._delete(route.id)

    async def _delete(self, name: str) -> None:
        try:
            await self._api.change("routes.delete", "DELETE", f"{await self._path()}/{name}")
        except NotFound:
            return

    async def _path(self) -> str:
        return f"projects/{(await self._api.place()).network_project}/global/routes"

    async def _list(self) -> Sequence[Json]:
        """All of the cluster's network, also those that lead there for others."""
        place = await self._api.place()
        records = await self._api.list("routes.list", await self._path())
        networks = (
            path_of_url(text(record.get("network")), place.network_project) for record in records
        )
        pairs = zip(records, networks, strict=True)
        return [item for item, network in pairs if network == place.network]

    def _is_own(self, record: Json) -> bool:
        is_marked = record.get("description") == DESCRIPTION
        return is_marked and bool(self._own.fullmatch(text(record.get("name"))))

    def _route(
        self, record: Json, by_path: Mapping[str, str], uids: Collection[str], project: str
    ) -> Route:
        name = text(record.get("name"))
        return Route(
            text(record.get("destRange")),
            by_path.get(_hop(record, project), ""),
            name,
            is_blackhole=NO_INSTANCE in _warnings(record),
            is_marked=name.removeprefix(self._prefix) in uids,
        )


def _hop(record: Json, project: str) -> str:
    return path_of_url(text(record.get("nextHopInstance")), project)


def _warnings(record: Json) -> set[str]:
    return {text(item.get("code")) for item in objects(record.get("warnings"))}
