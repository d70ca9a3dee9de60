"""What is behind a rule: a pool if it is external, else groups and a backend service."""

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from ccm.cloud.lookup import batches
from ccm.cloud.shared_read import SharedLock
from ccm.errors import Conflict, NotFound, Refused
from ccm.model.objects import Json, Node, text
from ccm.providers.gce import ids
from ccm.providers.gce.api import AlreadyMember, GceApi, InUse
from ccm.providers.gce.config import Place
from ccm.providers.gce.ids import path_of_url
from ccm.providers.gce.lb.names import Names
from ccm.providers.gce.lb.observed import POOL, SERVICE, Observed
from ccm.providers.gce.lb.parts import Parts
from ccm.providers.gce.lb.request import BalancerRequest

MAX_NEW, MAX_ADDED = 200, 1000  # instances of a pool when it is made, and in one change
MAX_MEMBERS = 1000  # of an instance group


def paths_of(nodes: Sequence[Node], place: Place) -> list[str]:
    """The instances of Nodes in this project and region; no other is behind a load balancer.

    A network spans all regions, and one instance from elsewhere has the whole write refused.
    """
    refs = filter(None, (ids.instance_of(node.provider_id) for node in nodes))
    here = place.project, place.region
    return sorted(ref.path for ref in refs if (ref.project, ids.region_of(ref.zone)) == here)


class TargetPools:
    """Pools of external load balancers: instances of the region, and one health check."""

    def __init__(self, api: GceApi, parts: Parts) -> None:
        self._api, self._parts = api, parts

    def path(self, place: Place, names: Names) -> str:
        return place.regional(POOL.collection, names.balancer)

    def must_be_replaced(self, request: BalancerRequest, record: Json | None) -> bool:
        """The affinity of a pool cannot be changed."""
        current = text((record or {}).get("sessionAffinity")) or request.affinity
        return current != request.affinity

    async def ensure(
        self,
        place: Place,
        names: Names,
        request: BalancerRequest,
        record: Json | None,
        check: str,
        paths: Sequence[str],
    ) -> None:
        """Make the pool, or its instances and its check right."""
        if record is None:
            made: Json = {
                "name": names.balancer,
                "description": names.marked_description,
                "sessionAffinity": request.affinity,
                "healthChecks": [self._api.url_of(check)],
                "instances": [self._api.url_of(path) for path in paths[:MAX_NEW]],
            }
            await self._parts.create(place, POOL, made)
            await self._add(place, names.balancer, paths[MAX_NEW:])
            return
        checks = [path_of_url(url, place.project) for url in record.get("healthChecks", ())]
        body: Json
        for item in checks:
            if item != check:
                body = {"healthChecks": [{"healthCheck": self._api.url_of(item)}]}
                await self._parts.call(place, POOL, names.balancer, "removeHealthCheck", body)
        if check not in checks:
            body = {"healthChecks": [{"healthCheck": self._api.url_of(check)}]}
            await self._parts.call(place, POOL, names.balancer, "addHealthCheck", body)
        await self.set_instances(place, record, paths)

    async def set_instances(self, place: Place, record: Json, paths: Collection[str]) -> None:
        """One change for those that come, one for those that go."""
        name = text(record.get("name"))
        current = {path_of_url(text(url), place.project) for url in record.get("instances", ())}
        await self._add(place, name, sorted({*paths} - current))
        for some in batches(sorted(current - {*paths}), MAX_ADDED):
            await self._parts.call(place, POOL, name, "removeInstance", self._references(some))

    async def _add(self, place: Place, name: str, paths: Sequence[str]) -> None:
        """Raises `Refused` for an instance that is gone."""
        for some in batches(paths, MAX_ADDED):
            try:
                await self._parts.call(place, POOL, name, "addInstance", self._references(some))
            except NotFound as gone:
                raise Refused(str(gone)) from gone

    def _references(self, paths: Sequence[str]) -> Json:
        return {"instances": [{"instance": self._api.url_of(path)} for path in paths]}


class BackendServices:
    """Backend services of internal load balancers, and the one instance group of each zone."""

    def __init__(self, api: GceApi, parts: Parts) -> None:
        self._api, self._parts = api, parts
        self._lock = SharedLock()
        self._done: tuple[float, Sequence[str]] = (
            0.0,
            (),
        )  # when groups were last right, for which nodes

    def name(self, names: Names, request: BalancerRequest) -> str:
        return names.backend_service(request.protocol, request.affinity, request.shares_backend)

    async def ensure(
        self,
        place: Place,
        names: Names,
        request: BalancerRequest,
        observed: Observed,
        check: str,
        paths: Sequence[str],
    ) -> None:
        """Groups first, as the service refers to them."""
        await self.set_instances(place, names, paths)
        name = self.name(names, request)
        desired = {
            "name": name,
            "description": "" if request.shares_backend else names.description,
            "protocol": request.protocol,
            "healthChecks": [self._api.url_of(check)],
            "sessionAffinity": request.affinity,
            "loadBalancingScheme": "INTERNAL",
        }
        record = observed.get(SERVICE, name)
        backends = self._backends(place, names, paths, record)
        await self._parts.ensure(place, SERVICE, desired | {"backends": backends}, record, [])

    async def set_backends(
        self, place: Place, names: Names, record: Json, paths: Sequence[str]
    ) -> None:
        """Groups of the zones that Nodes are in now."""
        await self.set_instances(place, names, paths)
        desired = {"name": record["name"]}
        desired["backends"] = self._backends(place, names, paths, record)
        await self._parts.ensure(place, SERVICE, desired, record, [])

    def _backends(
        self, place: Place, names: Names, paths: Sequence[str], record: Json | None
    ) -> list[Json]:
        """A group that is there already keeps what else was set for it."""
        current = {
            path_of_url(text(item.get("group")), place.project): item
            for item in (record or {}).get("backends", ())
        }
        groups = [f"{zone}/instanceGroups/{names.group}" for zone in by_zone(paths)]
        return [current.get(path) or {"group": self._api.url_of(path)} for path in groups]

    # Groups, which all internal load balancers share

    async def set_instances(self, place: Place, names: Names, paths: Sequence[str]) -> None:
        """Let the groups have these instances; what another call does meanwhile is not repeated."""
        asked = time.monotonic()
        async with self._lock.held():
            if self._done[0] < asked or self._done[1] != paths:
                await self._set_instances(place, names, by_zone(paths))
                self._done = time.monotonic(), paths

    async def _set_instances(
        self, place: Place, names: Names, wanted: Mapping[str, Collection[str]]
    ) -> None:
        groups = await self._groups(names)
        for zone in wanted.keys() - groups:
            try:
                path = f"{zone}/instanceGroups"
                body = {"name": names.group, "network": place.network}
                await self._api.change("instanceGroups.insert", "POST", path, body)
            except Conflict:
                continue
            except NotFound as gone:  # there is no such zone
                raise Refused(str(gone)) from gone
        for zone in sorted(wanted.keys() | groups):
            members = set[str]()
            if zone in groups:
                members = await self._members(place, zone, names)
            await self._fill(place, zone, names, members, wanted.get(zone, ()))

    async def _fill(
        self, place: Place, zone: str, names: Names, members: set[str], wanted: Collection[str]
    ) -> None:
        """One that is a member already spoils the batch: then the members are read again, once.

        Of too many those stay that are members: Nodes may name instances that are not there.
        """
        kept = {*sorted(wanted, key=lambda path: (path not in members, path))[:MAX_MEMBERS]}
        if gone := members - kept:
            await self._change("removeInstances", zone, names, gone)
        try:
            await self._change("addInstances", zone, names, kept - members)
        except AlreadyMember:
            members = await self._members(place, zone, names)
            await self._change("addInstances", zone, names, kept - members)

    async def _change(self, verb: str, zone: str, names: Names, paths: Collection[str]) -> None:
        if not paths:
            return
        path = f"{zone}/instanceGroups/{names.group}/{verb}"
        body = {"instances": [{"instance": self._api.url_of(item)} for item in sorted(paths)]}
        try:
            await self._api.change(f"instanceGroups.{verb}", "POST", path, body)
        except NotFound as gone:
            raise Refused(str(gone)) from gone

    async def _members(self, place: Place, zone: str, names: Names) -> set[str]:
        listed = await self._api.members(f"{zone}/instanceGroups/{names.group}")
        return {path_of_url(text(item.get("instance")), place.project) for item in listed}

    async def _groups(self, names: Names) -> set[str]:
        """The zones, as paths, that have the group."""
        place = await self._api.place()
        listed = await self._api.aggregated("instanceGroups", filter=f'name="{names.group}"')
        return {
            f"projects/{place.project}/{scope}"
            for scope, records in listed.records.items()
            if any(record.get("name") == names.group for record in records)
        }

    async def delete_groups(self, names: Names) -> None:
        """Take away the groups, unless another load balancer or Ingress uses them."""
        async with self._lock.held():
            self._done = 0.0, ()
            for zone in sorted(await self._groups(names)):
                path = f"{zone}/instanceGroups/{names.group}"
                try:
                    await self._api.change("instanceGroups.delete", "DELETE", path)
                except (NotFound, InUse):
                    continue


def by_zone(paths: Sequence[str]) -> dict[str, list[str]]:
    """Instances by the paths of their zones."""
    found = defaultdict[str, list[str]](list)
    for path in paths:
        found[path.partition("/instances/")[0]].append(path)
    return dict(found)
