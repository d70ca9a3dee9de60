"""The load balancers of Services: one record each, found by what says whose it is.

DigitalOcean is at work on a load balancer for a while after each change, and takes no other one
then.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ccm.cloud.json_api import verify_about
from ccm.cloud.record_balancers import Desired, RecordBalancers
from ccm.cloud.shared_read import SharedRead
from ccm.errors import (
    CloudError,
    Conflict,
    Denied,
    ImplementedElsewhere,
    NotFound,
    Refused,
    RetryAfter,
)
from ccm.http import path_of
from ccm.model.cloud import UUID, Balancer, OwnedBalancer
from ccm.model.objects import Json, Node, mapping, text
from ccm.model.records import differences
from ccm.model.service import Feature, Service
from ccm.providers.digitalocean.api import BALANCERS, DigitalOceanApi
from ccm.providers.digitalocean.config import NETWORK, REGIONAL, DigitalOceanConfig
from ccm.providers.digitalocean.droplets import DropletList, Droplets
from ccm.providers.digitalocean.ids import Cluster, service_of, tags_of
from ccm.providers.digitalocean.instances import DropletInstances
from ccm.providers.digitalocean.lb import plan
from ccm.providers.digitalocean.lb.annotations import (
    BALANCER_ID,
    DISOWN,
    PREFIX,
    PRIVILEGED,
    Annotations,
    is_disowned,
)
from ccm.providers.digitalocean.lb.certificates import Certificates
from ccm.providers.digitalocean.lb.names import Names
from ccm.providers.digitalocean.lb.request import EXTERNAL, LoadBalancerRequest, read_request

NEW, ACTIVE = "new", "active"
NEW_RETRY = 15.0  # seconds; upstream's


class DigitalOceanLoadBalancers(RecordBalancers[LoadBalancerRequest]):
    """One for each Service, called after its UID or as its annotation says."""

    supported_features = frozenset({Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.SOURCE_RANGES})
    privileged_annotations = frozenset({DISOWN, *(PREFIX + name for name in PRIVILEGED)})

    def __init__(
        self,
        api: DigitalOceanApi,
        droplets: Droplets,
        config: DigitalOceanConfig,
        cluster: Cluster,
        restricts_annotations: bool = False,
    ) -> None:
        super().__init__(DropletInstances(droplets))
        self._may_disown = not restricts_annotations
        self._api, self._droplets, self._config = api, droplets, config
        self._droplet_list = SharedRead(droplets.list)
        self._cluster, self._certificates = cluster, Certificates(api)
        self._made: dict[str, str] = {}  # IDs of what was created, by the UID of its Service
        self._compared: dict[str, Json] = {}  # what each was to have when last compared, by ID

    def check_served(self, service: Service) -> None:
        if self._may_disown and is_disowned(service):
            raise ImplementedElsewhere(f"the load balancer of Service {service.key} is disowned")

    # Whose they are

    async def read_all(self) -> Sequence[Json]:
        return await self._api.balancers()

    def own(self, service: Service, records: Sequence[Json]) -> Sequence[Json]:
        return Names(service, self._cluster).own(records)

    def check_free(self, service: Service, records: Sequence[Json], is_deleted: bool) -> None:
        Names(service, self._cluster).check_free(records, is_deleted)

    def owner_of(self, record: Json) -> OwnedBalancer | None:
        """By the tags that the API shows: a name says nothing of clusters."""
        tags, name = tags_of(record), text(record.get("name"))
        is_ours = self._cluster.tag in tags
        return OwnedBalancer(name, uid) if is_ours and (uid := service_of(tags)) else None

    # What a Service asks for

    async def request(self, service: Service, own: Sequence[Json]) -> LoadBalancerRequest:
        """For the type that the load balancer has, where the Service says none."""
        current, section = own[0] if own else Json(), self._config.balancers
        default = text(current.get("type")) or section.type
        read, certificate_id = Annotations(service), ""
        if read.text("type", default) != NETWORK:
            in_use = plan.certificate_of(current)
            certificate_id = await self._certificates.id_for(read, in_use)
        request = read_request(service, default, section.network_stack, certificate_id)
        if own and Names(service, self._cluster).annotated_id not in ("", current.get("id")):
            why = f"annotation {BALANCER_ID} is ignored: the Service's load balancer is another"
            request.warnings.append(why)
        return request

    async def desired(
        self, request: LoadBalancerRequest, nodes: Sequence[Node], own: Sequence[Json]
    ) -> Sequence[Desired]:
        backends = plan.backends(request.type, request.network, nodes)
        request.warnings.extend(backends.warnings)
        if not own:
            return [Desired(None, await self._new(request, backends))]
        plan.check_fixed(request, own[0])
        return [Desired(own[0], {**request.settings, **backends.content})]

    async def desired_backends(self, record: Json, nodes: Sequence[Node]) -> Desired:
        kind, network = text(record.get("type")), text(record.get("network"))
        backends = plan.backends(kind or REGIONAL, network or EXTERNAL, nodes)
        return Desired(record, backends.content)

    def differences(self, desired: Json, record: Json) -> Json:
        return differences(desired, plan.completed(record, desired))

    async def _place_of(self, droplet_ids: Sequence[int]) -> tuple[str, str]:
        """The region and VPC of most droplets of the Nodes, of which each kubelet names its own.

        Of as many, those of the oldest. Without any it refuses, as a write with them would.
        """
        listed, gpus = (await self._droplet_list()).by_id, DropletList()
        if {*droplet_ids} - listed.keys():
            await self._droplets.add_gpus(gpus)
        known = listed | gpus.by_id
        found = [known[item] for item in droplet_ids if item in known]
        places = Counter((droplet.region, droplet.vpc) for droplet in found)
        if not places:
            raise Refused("no droplet of the Nodes is listed: give region in [Global]")
        return max(places, key=places.__getitem__)

    async def _new(self, request: LoadBalancerRequest, backends: plan.Backends) -> Json:
        """Under the name that proves whose it is, whatever comes after that."""
        common, service = self._config.common, request.annotations.service
        region, vpc_id = common.region, common.vpc_id
        if backends.droplet_ids and not (region and vpc_id):
            place = await self._present_nodes.write(self._place_of(backends.droplet_ids))
            region, vpc_id = region or place[0], vpc_id or place[1]
        if not region:
            raise Refused("without a Node the region is not known: give region in [Global]")
        where: Json = {"name": self.name_for(service), "region": region}
        where |= {"tags": self._cluster.tags(service.uid)}
        where |= {"vpc_uuid": vpc_id} if vpc_id else {}
        if request.type == NETWORK:
            backends = await self._without_ipv6(backends)
        return plan.creation(request, backends, where)

    async def _without_ipv6(self, backends: plan.Backends) -> plan.Backends:
        """By the droplets where Nodes differ: a kubelet writes what addresses its Node has."""
        doubted = backends.without_ipv6
        if len(doubted) in (0, len(backends.names)):
            return backends
        droplets = (await self._droplet_list()).by_id
        lacking = {
            name: number
            for name, number in doubted.items()
            if number not in droplets or not droplets[number].has_ipv6
        }
        return replace(backends, without_ipv6=lacking)

    # What there is

    def check_ready(self, record: Json) -> None:
        status, balancer_id = text(record.get("status")), text(record.get("id"))
        if status == NEW:
            raise RetryAfter(f"load balancer {balancer_id} is being made", NEW_RETRY)
        if status != ACTIVE:
            raise CloudError(
                f"load balancer {balancer_id} is {status or 'in no known state'}: if it stays so, "
                "delete it in DigitalOcean, and it will be recreated"
            )

    def balancer(self, request: LoadBalancerRequest, records: Sequence[Json]) -> Balancer:
        record, warnings = records[0], tuple(dict.fromkeys(request.warnings))
        return Balancer(text(record.get("name")), request.ingress(record), warnings)

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

    # Writing

    async def create(self, request: LoadBalancerRequest, desired: Desired) -> Json:
        """Unless one by its ID is the Service's: a list may lack it, and it has another name."""
        body, service = desired.content, request.annotations.service
        names, made_id = Names(service, self._cluster), self._made.get(service.uid, "")
        for balancer_id in {made_id, names.annotated_id}:
            record = await self.look(balancer_id) if UUID.fullmatch(balancer_id) else None
            if record and (balancer_id == made_id or names.is_proven(record)):
                raise CloudError(
                    f"ListLoadBalancers: the answer lacks {balancer_id}, which is there"
                )
        made = await self._send("CreateLoadBalancer", "POST", BALANCERS, body, "name", body["name"])
        self._made[service.uid] = text(made.get("id"))
        return made

    async def look(self, record_id: str) -> Json | None:
        try:
            answer = await self._api.get("GetLoadBalancer", BALANCERS + path_of(record_id))
        except NotFound:
            return None
        record = dict(mapping(answer.get("load_balancer")))
        verify_about("GetLoadBalancer", record, "id", record_id)
        return record

    def marks_of(self, record: Json) -> str:
        return service_of(tags_of(record)) or text(record.get("name"))

    def is_doubted(self, record: Json) -> bool:
        """It is written whole, and one list may lack a part of it, or be old."""
        settings = self._compared.get(text(record.get("id")))
        return settings is None or plan.lacks(record, settings)

    async def update(self, record: Json, changes: Json) -> Json:
        path, balancer_id = _path_of(record), text(record.get("id"))
        body = plan.update(record, changes)
        return await self._send("UpdateLoadBalancer", "PUT", path, body, "id", balancer_id)

    async def remove(self, record: Json) -> None:
        balancer_id = text(record.get("id"))
        self._made = {uid: made for uid, made in self._made.items() if made != balancer_id}
        self._compared.pop(balancer_id, None)
        await self._api.write("DeleteLoadBalancer", "DELETE", _path_of(record))

    async def finish(self, request: LoadBalancerRequest, record: Json) -> Json:
        self._compared[text(record.get("id"))] = request.settings
        renamed = await self._rename(request, record)
        self.check_ready(renamed)
        await self._tag(renamed)
        return renamed

    async def _rename(self, request: LoadBalancerRequest, record: Json) -> Json:
        """Its record with the name by annotation, unless another has that.

        While nothing else says whose it is, it has the name that does, or gets it back.
        """
        names, why = Names(request.annotations.service, self._cluster), ""
        name = names.wanted
        if not names.may_rename(record):
            name, proof = names.default, "the Service's UID, which alone identifies its owner"
            why = f"the load balancer is called after {proof}"
        try:
            if record.get("name") != name:
                record = await self.change(record, {"name": name})
        except Conflict:
            why = "another load balancer has this name"
        if why:
            request.annotations.ignore("name", why)
        return record

    async def _send(
        self, operation: str, method: str, path: str, body: Json, key: str, asked: str
    ) -> Json:
        """The record in the answer, which has `asked` under `key`: no one else's is changed."""
        answer = await self._api.write(operation, method, path, body)
        record = dict(mapping(answer.get("load_balancer")))
        verify_about(operation, record, key, asked)
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


def _path_of(record: Json) -> str:
    return BALANCERS + path_of(text(record.get("id")))
