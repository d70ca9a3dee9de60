"""Public addresses of load balancers: created for a Service and marked as its own, or given."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from ccm.cloud.lookup import find_lost, together
from ccm.cloud.shared_read import KeptRead, SharedLock, SharedRead
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.azure.api import RACE_RETRY, AzureApi, Elsewhere
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.ids import (
    NETWORK,
    Scope,
    id_of,
    key_of,
    name_of,
    properties_of,
    same,
    scope_of,
)
from ccm.providers.azure.lb.annotations import PREFIX, Annotations
from ccm.providers.azure.lb.names import CLUSTER_TAGS, DNS_TAGS, SERVICE_TAGS, Names
from ccm.providers.azure.lb.owners import Owner, ip_of, ips_of, services_of, tag_of
from ccm.providers.azure.lb.plan import covers, frontends_of
from ccm.providers.azure.lb.request import BalancerRequest
from ccm.providers.azure.shared_writes import SharedResource

GIVEN_BY_OWNER = ("dns-label-name", "pip-tags")
RESERVED_TAGS = frozenset((*CLUSTER_TAGS, *SERVICE_TAGS, *DNS_TAGS))


class PublicAddresses:
    """Reads a list of a group, and writes one address at a time."""

    def __init__(
        self,
        api: AzureApi,
        config: AzureConfig,
        cluster: str,
        balancers: Iterable[str] = (),
        restricts: bool = False,
    ) -> None:
        self._api, self._config, self._cluster = api, config, cluster
        self._balancers = {item.lower() for item in balancers}  # the cluster's, by their IDs
        self._restricts = restricts  # whether Services may have addresses made for them only
        self._lists: dict[str, SharedRead[list[Json]]] = {}
        self.zones = KeptRead(self._read_zones)

    async def list(self, group: str) -> Sequence[Json]:
        """All of a resource group; the cluster's where it is empty."""
        scope = self._scope(group)
        if scope.group not in self._lists:
            path = scope.id(NETWORK, "publicIPAddresses")
            self._lists[scope.group] = SharedRead(
                lambda: self._api.list("ListPublicAddresses", path)
            )
        read = self._lists[scope.group]
        try:
            return await read()
        except Elsewhere:
            if not group:
                raise
            return ()  # a group by annotation that is not there has none
        finally:  # a tenant may name another group each time
            if read.is_idle:
                self._lists.pop(scope.group, None)

    async def list_all(self, group: str) -> Sequence[Json]:
        """All of the cluster's resource group, and of this one, where it is another."""
        lists = await together(*(self.list(item) for item in dict.fromkeys(("", group))))
        return [*chain.from_iterable(lists)]

    async def complete(
        self, frontends: Iterable[Json], listed: Sequence[Json] = ()
    ) -> Sequence[Json]:
        """`listed`, and what these frontends have besides: of groups that it has none of, or lost.

        What a list lacks is asked for by itself. What has gone meanwhile is there without address.
        """
        found = {key_of(item): item for item in listed}
        public = {key_of(properties_of(item).get("publicIPAddress")) for item in frontends} - {""}
        known = {scope.group for key in found if (scope := scope_of(key))}
        groups = {scope.group for key in public - found.keys() if (scope := scope_of(key))}
        for group in sorted(groups - known):
            found |= {key_of(item): item for item in await self.list(group)}
        lost = public - found.keys()
        current = await find_lost("ListPublicAddresses", lost, self._read)
        return [*found.values(), *current.values(), *({"id": key} for key in lost - current.keys())]

    async def of_others(
        self,
        balancers: Iterable[Json],
        names: Names,
        claimed: Collection[str],
        listed: Sequence[Json],
    ) -> set[str]:
        """The addresses of all frontends that are not this Service's, those that it shares too,
        those whose tags or users are another's, and those `claimed`, public ones by ID.
        """
        owner = self.owner(names.service)
        frontends = [
            frontend
            for balancer in balancers
            for frontend in frontends_of(balancer)
            if not names.is_own(text(frontend.get("name")))
        ]
        others = [item for item in listed if key_of(item) in claimed or owner.is_anothers(item)]
        marked = {*map(ip_of, others), *claimed} - {""}
        return {*ips_of(frontends, await self.complete(frontends, listed))} | marked

    async def _read(self, path: str) -> Json | None:
        return await SharedResource(self._api, "PublicAddress", path, None).read()

    def named(self, request: BalancerRequest, listed: Sequence[Json]) -> dict[str, Json]:
        """By family, the addresses that the Service names, as far as they are there."""
        group = self._path(request, "").lower()
        return {
            family: item
            for family, asked in request.public.items()
            for item in listed
            if key_of(item).startswith(group)
            and _is_asked(item, asked.name, request.fixed.get(family, ""))
        }

    def made_here(self, record: Json) -> bool:
        """Whether this cluster made it, for whichever Service."""
        return same(tag_of(record, CLUSTER_TAGS), self._cluster)

    def owner(self, service: Service) -> Owner:
        return Owner(self._cluster, service.key, self._balancers)

    async def ensure(
        self, request: BalancerRequest, family: str, found: Json | None, listed: Sequence[Json]
    ) -> Json:
        """The address of one family as the Service wants it, which is `found` where it names one
        that is there; raises `Refused`.
        """
        asked, fixed = request.public[family], request.fixed.get(family, "")
        if asked.name or fixed:
            if not found:
                what = f"public address {asked.name or fixed}"
                raise Refused(f"there is no {what} in resource group {self._group_of(request)}")
            record, name = found, text(found.get("name"))
            self._check_free(request, record)
        else:
            name = request.names.address(family, name_of(asked.prefix))
            path = self._path(request, name)
            record = next((item for item in listed if same(id_of(item), path)), Json())
            if not record and request.service.ingress:  # the list may lack it
                record = await self._read(path) or {}
            is_by_name = self.made_here(record) and request.names.base in name  # others shared it
            if record and not (is_by_name or self.owner(request.service).is_of(record)):
                raise Refused(
                    f"public address {name} is not marked as Service {request.service.key}'s"
                )
        wanted = await self._wanted(request, family, record, name, is_new=not record)
        if record and covers(record, wanted) and not self._lacks_dns(request, record, wanted):
            return record
        return await self._write(record, wanted, self._path(request, name))

    def _check_free(self, request: BalancerRequest, record: Json) -> None:
        """Raise `Refused` for another cluster's; where Services are restricted, for any other's."""
        cluster, name = tag_of(record, CLUSTER_TAGS), text(record.get("name"))
        if cluster and not same(cluster, self._cluster):
            raise Refused(f"public address {name} is of cluster {cluster}")
        if self._restricts and not self.owner(request.service).is_of(record):
            raise Refused(f"public address {name} was not made for Service {request.service.key}")

    async def release(self, owner: Owner, kept: Sequence[str], listed: Sequence[Json]) -> None:
        """Delete what was made for the Service and is not kept; take its name and its DNS label off
        others.
        """
        for record in listed:
            is_own, has_label = owner.is_of(record), _has_label(owner, record)
            if not (is_own or has_label) or any(same(id_of(record), item) for item in kept):
                continue
            others = [
                service for service in services_of(record) if not same(service, owner.service)
            ]
            path = id_of(record)
            if is_own and not others:
                await self._delete(owner, path)
                continue
            left: Json = {"tags": {SERVICE_TAGS[0]: ",".join(others)} if is_own else {}}
            if has_label:  # or others would have its name
                left["tags"][DNS_TAGS[0]] = None
                left["properties"] = {"dnsSettings": None}
            await self._write(record, left, path)

    async def _delete(self, owner: Owner, path: str) -> None:
        """Raise where a list has it as the Service's and it is another's, which may be unused."""
        if (found := await self._read(path)) and not owner.is_of(found):
            raise CloudError(f"ListPublicAddresses: {path} is not the Service's own")
        await self._api.delete("DeletePublicAddress", path)

    async def _write(self, listed: Json, wanted: Json, path: str) -> Json:
        """The address as it is then; what a list has of it, an answer of its ETag has to have.

        It is written whole: its DNS label would be anybody's, or its tags would go. Who else uses
        it since was not seen, and would not be named.
        """
        empty = None if listed else Json()
        lock = SharedLock(None)
        resource = SharedResource(self._api, "PublicAddress", path, empty, lock=lock, is_kept=False)

        def edit(current: Json) -> None:
            if services_of(current) != services_of(listed):
                raise RetryAfter(f"other Services use {path} by now", RACE_RETRY)
            if current.get("etag") == listed.get("etag") and not covers(current, listed):
                raise RetryAfter(f"the answer lacks parts of {path}", RACE_RETRY)
            _change(current, wanted)

        return await resource.change(edit, None if listed else {"id": path}) or {}

    async def _read_zones(self) -> Sequence[str]:
        """The region's zones, which new addresses and frontends are in, as upstream's.

        The more of two answers: what is made without one is never in it.
        """
        first = await self._zones_of_region()
        return max(first, await self._zones_of_region(), key=len)

    async def _zones_of_region(self) -> Sequence[str]:
        path = f"/subscriptions/{self._config.network_subscription}/providers/Microsoft.Compute"
        answer = await self._api.get("GetZones", path)
        region = self._config.location.replace(" ", "").lower()
        kinds = objects(answer.get("resourceTypes"))
        machines = [kind for kind in kinds if kind.get("resourceType") == "virtualMachines"]
        if not machines:
            raise CloudError("GetZones: the answer lacks virtual machines")
        found = [
            text(zone)
            for kind in machines
            for record in objects(kind.get("zoneMappings"))
            if text(record.get("location")).replace(" ", "").lower() == region
            for zone in record.get("zones") or ()
        ]
        return sorted(found)

    async def _wanted(
        self, request: BalancerRequest, family: str, record: Json, name: str, *, is_new: bool
    ) -> Json:
        """What has to be true of it; of one that the Service did not make only its DNS label."""
        annotations, service = request.annotations, request.service.key
        wanted: Json = {}
        users = services_of(record)
        if users and not same(users[0], service):
            annotations = _without(annotations, name, GIVEN_BY_OWNER)
        if is_new or users:
            users += [] if any(same(item, service) for item in users) else [service]
            tags = {**self._config.resource_tags, **_tags_of(annotations)}
            wanted["tags"] = tags | {SERVICE_TAGS[0]: ",".join(users)}
        if is_new:
            wanted["tags"][CLUSTER_TAGS[0]] = self._cluster
            zones = await self.zones()
            wanted |= {
                "location": self._config.location,
                "sku": {"name": "Standard"},
                **({"zones": [*zones]} if zones else {}),
                "properties": {
                    "publicIPAllocationMethod": "Static",
                    "publicIPAddressVersion": family,
                },
            }
            if prefix := request.public[family].prefix:
                wanted["properties"]["publicIPPrefix"] = {"id": prefix}
            if ip_tags := annotations.pairs("pip-ip-tags"):
                listed = [{"ipTagType": key, "tag": value} for key, value in ip_tags.items()]
                wanted["properties"]["ipTags"] = listed
        if annotations.has("dns-label-name"):
            label = annotations.text("dns-label-name").lower()
            current = text(mapping(properties_of(record).get("dnsSettings")).get("domainNameLabel"))
            user = tag_of(record, DNS_TAGS)
            if current and user and not same(user, service):
                raise Refused(f"public address {name} has the DNS label of Service {user}")
            if current and not user and not same(current, label):
                raise Refused(f"public address {name} has the DNS label {current!r} already")
            if (label or current) and (user or not current):  # or it is by hand, and stays
                wanted.setdefault("properties", {})["dnsSettings"] = (
                    {"domainNameLabel": label} if label else None
                )
                wanted.setdefault("tags", {})[DNS_TAGS[0]] = service if label else None
        return wanted

    def _lacks_dns(self, request: BalancerRequest, record: Json, wanted: Json) -> bool:
        """Whether a label is left that the Service set and does not ask for any more."""
        is_ours = same(tag_of(record, DNS_TAGS), request.service.key)
        if not is_ours or request.annotations.has("dns-label-name"):
            return False
        wanted.setdefault("properties", {})["dnsSettings"] = None
        wanted.setdefault("tags", {})[DNS_TAGS[0]] = None
        return True

    def _group_of(self, request: BalancerRequest) -> str:
        return (
            request.annotations.text("load-balancer-resource-group") or self._config.resource_group
        )

    def _scope(self, group: str) -> Scope:
        return self._config.network_scope(group.lower() or self._config.resource_group.lower())

    def _path(self, request: BalancerRequest, name: str) -> str:
        scope = self._config.network_scope(self._group_of(request))
        return scope.id(NETWORK, "publicIPAddresses", name)


def _has_label(owner: Owner, record: Json) -> bool:
    """Whether its DNS label is the Service's: another cluster may have one of its name."""
    if owner.is_anothers(record) or owner.is_elsewhere(record):
        return False
    return same(tag_of(record, DNS_TAGS), owner.service)


def _tags_of(annotations: Annotations) -> dict[str, str]:
    """Those that a Service asks for, without those that show whose an address is."""
    found = annotations.pairs("pip-tags")
    for key in [item for item in found if item.lower() in RESERVED_TAGS]:
        del found[key]
        annotations.warnings.append(f"annotation {PREFIX}pip-tags: {key} is a controller's tag")
    return found


def _without(annotations: Annotations, address: str, names: Collection[str]) -> Annotations:
    """Those of a Service that shares an address; these are for the Service it was made for."""
    for name in filter(annotations.has, names):
        why = f"public address {address} was made for another Service"
        annotations.warnings.append(f"annotation {PREFIX}{name} has no effect: {why}")
    left_out = {f"{PREFIX}{name}" for name in names}
    kept = {key: value for key, value in annotations.values.items() if key not in left_out}
    return replace(annotations, values=kept)


def _is_asked(record: Json, name: str, ip: str) -> bool:
    return same(text(record.get("name")), name) if name else bool(ip) and ip_of(record) == ip


def _change(record: Json, wanted: Mapping[str, object]) -> None:
    """Write what is wanted over a record, part by part; None takes a part away."""
    for key, value in wanted.items():
        current = record.get(key)
        if isinstance(value, dict) and (isinstance(current, dict) or current is None):
            record[key] = dict(current or {})
            _change(record[key], value)
        elif value is None:
            record.pop(key, None)
        else:
            record[key] = value
