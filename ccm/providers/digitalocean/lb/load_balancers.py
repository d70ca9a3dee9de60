"""The load balancers of Services: reads, a plan, and at most one change of the API's record.

DigitalOcean is at work on a load balancer for a while after each change, and takes no other one
then; `RetryAfter` lets the worker do something else meanwhile.
"""

from collections.abc import Sequence
from typing import NoReturn

from ccm.errors import (
    CloudError,
    Denied,
    ImplementedElsewhere,
    NotFound,
    Refused,
    RetryAfter,
    warnings_as_notes,
)
from ccm.http import path_of
from ccm.model.cloud import Balancer, OwnedBalancer
from ccm.model.objects import Json, Node, mapping, text
from ccm.model.service import Feature, Service
from ccm.providers.digitalocean.api import DigitalOceanApi
from ccm.providers.digitalocean.config import NETWORK, REGIONAL, DigitalOceanConfig
from ccm.providers.digitalocean.droplets import Droplets
from ccm.providers.digitalocean.ids import Cluster, service_of, tags_of
from ccm.providers.digitalocean.lb import plan
from ccm.providers.digitalocean.lb.annotations import (
    BALANCER_ID,
    OUTREACHING,
    PREFIX,
    Annotations,
    is_disowned,
)
from ccm.providers.digitalocean.lb.certificates import Certificates
from ccm.providers.digitalocean.lb.names import Names
from ccm.providers.digitalocean.lb.request import EXTERNAL, LoadBalancerRequest, read_request
from ccm.providers.digitalocean.lb.search import ROOT, BalancerSearch

NEW, ACTIVE = "new", "active"
NEW_RETRY = 15.0  # seconds; upstream's
NOT_UNIQUE = "not unique"


class DigitalOceanLoadBalancers:
    """One for each Service, called after its UID or as its annotation says."""

    supported_features = frozenset({Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.SOURCE_RANGES})
    privileged_annotations = frozenset(PREFIX + name for name in OUTREACHING)

    def __init__(
        self,
        api: DigitalOceanApi,
        droplets: Droplets,
        config: DigitalOceanConfig,
        cluster: Cluster,
    ) -> None:
        self._api, self._droplets, self._config = api, droplets, config
        self._cluster, self._certificates = cluster, Certificates(api)
        self._search = BalancerSearch(api)
        self._ended: set[int] = set()  # droplets of Nodes that are still there; it saves calls

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    async def get(self, service: Service) -> Balancer | None:
        names = self._names(service)
        found = await self._search.find(names)
        if found is None:
            return None
        return self._balancer(await self._request(names, found), found)

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        """As the interface; `RetryAfter` until DigitalOcean says that it is active."""
        self._check_disowned(service)
        names = self._names(service)
        found = await self._search.find(names, is_needed=True)
        request = await self._request(names, found)
        with warnings_as_notes(request.annotations):
            behind = plan.backends(request.type, request.network, nodes, self._ended)
            request.annotations.warnings.extend(behind.warnings)
            if found is None:
                await self._create(names, request, behind)
            self._check_status(found)
            plan.check_fixed(request, found)
            changed = plan.changes(request, behind, found)
            if changed:
                found = await self._update(found, changed)
            self._check_status(found := await self._rename(names, request, found))
            await self._tag(found)
            return self._balancer(request, found)

    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        self._check_disowned(service)
        found = await self._search.find(self._names(service))
        if found is None:
            raise Refused(f"Service {service.key} has no load balancer")
        kind, network = text(found.get("type")), text(found.get("network"))
        behind = plan.backends(kind or REGIONAL, network or EXTERNAL, nodes, self._ended)
        if changed := plan.host_changes(behind, found):
            self._check_status(found)
            await self._update(found, changed)

    async def delete(self, service: Service) -> None:
        self._check_disowned(service)
        names = self._names(service)
        found = await self._search.find(names, is_needed=True, may_be_claimed=False)
        if found is None:
            return
        try:
            path = ROOT + path_of(text(found.get("id")))
            await self._api.write("DeleteLoadBalancer", "DELETE", path)
        except NotFound:
            pass
        self._search.forget(service.uid)

    async def owned(self) -> Sequence[OwnedBalancer]:
        """By the tags that the API shows: a name says nothing of clusters."""
        listed = await self._search.complete_list()
        return [
            OwnedBalancer(text(one.get("name")), uid)
            for one in listed.records
            if self._cluster.tag in tags_of(one) and (uid := service_of(tags_of(one)))
        ]

    async def missing_permissions(self) -> Sequence[str]:
        """Scopes to read that the token lacks; those to write cannot be tried."""
        needed = {"certificate:read": "ListCertificates /certificates"}
        if self._config.firewall.name:
            needed["firewall:read"] = "ListFirewalls /firewalls"
        missing = list[str]()
        for scope, call in needed.items():
            operation, path = call.split()
            try:
                await self._api.get(operation, path, per_page="1")
            except Denied:
                missing.append(scope)
        return missing

    # Reading

    def _names(self, service: Service) -> Names:
        return Names(service, self._cluster)

    def _check_disowned(self, service: Service) -> None:
        if is_disowned(service):
            raise ImplementedElsewhere(f"the load balancer of Service {service.key} is disowned")

    async def _request(self, names: Names, there: Json | None) -> LoadBalancerRequest:
        """For the type that the load balancer has, where the Service says none."""
        service, section = names.service, self._config.balancers
        default = text((there or {}).get("type")) or section.type
        read, certificate_id = Annotations(service), ""
        if read.text("type", default) != NETWORK:
            in_use = plan.certificate_of(there or {})
            certificate_id = await self._certificates.id_for(read, in_use)
        request = read_request(service, default, section.network_stack, certificate_id)
        if there and names.annotated_id not in ("", there.get("id")):
            why = f"annotation {BALANCER_ID} is ignored: the Service's load balancer is another"
            request.annotations.warnings.append(why)
        return request

    def _check_status(self, record: Json) -> None:
        status, balancer_id = text(record.get("status")), text(record.get("id"))
        if status == NEW:
            raise RetryAfter(f"load balancer {balancer_id} is being made", NEW_RETRY)
        if status != ACTIVE:
            raise CloudError(
                f"load balancer {balancer_id} is {status or 'in no known state'}: if it stays so, "
                "delete it in DigitalOcean, and it will be made anew"
            )

    def _balancer(self, request: LoadBalancerRequest, record: Json) -> Balancer:
        warnings = tuple(dict.fromkeys(request.annotations.warnings))
        ingress = request.ingress(record) if record.get("status") == ACTIVE else ()
        return Balancer(text(record.get("name")), ingress, warnings)

    # Writing

    async def _create(
        self, names: Names, request: LoadBalancerRequest, behind: plan.Backends
    ) -> NoReturn:
        """Make it under the name that proves whose it is, whatever comes after that."""
        common, uid = self._config.common, names.service.uid
        region, vpc_id = common.region, common.vpc_id
        if behind.droplet_ids and not (region and vpc_id):
            droplet = await self._droplets.get(min(behind.droplet_ids))
            region, vpc_id = region or droplet.region, vpc_id or droplet.vpc
        if not region:
            raise Refused("without a Node the region is not known: give region in [Global]")
        where: Json = {"name": names.default, "region": region, "tags": self._cluster.tags(uid)}
        where |= {"vpc_uuid": vpc_id} if vpc_id else {}
        body = plan.creation(request, behind, where)
        record = await self._send("CreateLoadBalancer", "POST", ROOT, body)
        balancer_id = text(record.get("id"))
        self._search.remember(uid, balancer_id)
        raise RetryAfter(f"load balancer {balancer_id} is being made", NEW_RETRY)

    async def _update(self, there: Json, changed: Json) -> Json:
        path = ROOT + path_of(text(there.get("id")))
        return await self._send("UpdateLoadBalancer", "PUT", path, plan.update(there, changed))

    async def _rename(self, names: Names, request: LoadBalancerRequest, record: Json) -> Json:
        """Its record with the name by annotation, unless another has that.

        While nothing else says whose it is, it keeps the name that does.
        """
        why = "the load balancer is called after the Service's UID, which alone says whose it is"
        if record.get("name") == names.wanted:
            return record
        if names.may_rename(record):
            try:
                return await self._update(record, {"name": names.wanted})
            except Refused as refused:
                if NOT_UNIQUE not in str(refused):
                    raise
                why = "another load balancer has this name"
        request.annotations.ignore("name", why)
        return record

    async def _send(self, operation: str, method: str, path: str, body: Json) -> Json:
        """The record in the answer; a droplet that ended does not keep the others out."""
        try:
            answer = await self._api.write(operation, method, path, body)
        except Refused as refused:
            if NOT_UNIQUE in str(refused):
                if method == "POST":
                    raise CloudError(f"{refused}: one was made a moment ago") from refused
                raise
            listed = await self._droplets.list()
            await self._droplets.add_gpus(listed)
            ended = {*body["droplet_ids"]} - listed.by_id.keys()
            if not ended or listed.incomplete_reasons:
                raise
            self._ended |= ended
            left = sorted({*body["droplet_ids"]} - ended)
            answer = await self._api.write(operation, method, path, body | {"droplet_ids": left})
        record = dict(mapping(answer.get("load_balancer")))
        if not record.get("id"):
            raise CloudError(f"{operation}: the answer has no load balancer")
        return record

    async def _tag(self, record: Json) -> None:
        """With the cluster's ID, where the API shows that it is not: others go by that."""
        if not self._config.common.cluster_id or not isinstance(record.get("tags"), list):
            return
        if self._cluster.tag in tags_of(record):
            return
        tag = self._cluster.tag
        of = {"resource_id": text(record.get("id")), "resource_type": "load_balancer"}
        path = path_of("tags", tag, "resources")
        try:
            await self._api.write("TagLoadBalancer", "POST", path, {"resources": [of]})
        except NotFound:
            await self._api.write("CreateTag", "POST", "/tags", {"name": tag})
            await self._api.write("TagLoadBalancer", "POST", path, {"resources": [of]})
