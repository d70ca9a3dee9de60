"""Balancers of the simulated cloud for Services: one record each, read before it is written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

from ccm.cloud.interface import Instances
from ccm.cloud.record_balancers import Desired, RecordBalancers
from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.cloud import Balancer, Ingress, IpMode, OwnedBalancer
from ccm.model.objects import Json, Node, mapping, objects_with, text
from ccm.model.records import differences
from ccm.model.service import Feature, Service, ServicePort, admits_everybody
from ccm.providers.simulated.api import LookupResult, SimulatedApi
from ccm.providers.simulated.instances import SCHEME

PREFIX = "service.beta.kubernetes.io/simulated-load-balancer-"
PATH, LIST = "/v1/load-balancers", "ListLoadBalancers"
SCHEME_ANNOTATION = f"{PREFIX}scheme"
SCHEMES = ("internet", "internal")
PROTOCOLS = ("TCP", "UDP")
POLL_INTERVAL = 1.0  # seconds after which a balancer that is at work is looked at again

IMMUTABLE_FIELDS = ("scheme", "ip")
"""What cannot be changed after creation."""


@dataclass(frozen=True, slots=True)
class BalancerRequest:
    """What is fixed in a Service's record once it is created, and the rest without backends."""

    mark: Json
    settings: Json
    warnings: Sequence[str] = ()


class SimulatedLoadBalancers(RecordBalancers[BalancerRequest]):
    """The balancers that carry our tags; a change is one call that names only what differs."""

    supported_features = frozenset(
        {Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.SOURCE_RANGES, Feature.FIXED_IP}
    )

    def __init__(
        self, api: SimulatedApi, instances: Instances, cluster: str, page_size: int
    ) -> None:
        super().__init__(instances)
        self._api, self._cluster, self.batch_size = api, cluster, page_size
        self._look_up = SharedRead(self._read_named, page_size)

    async def read_all(self) -> Sequence[Json]:
        return [_record(item) for item in await self._api.items(LIST, PATH)]

    async def read(self, service: Service) -> Sequence[Json]:
        return await self._read(self.name_for(service))

    def own(self, service: Service, records: Sequence[Json]) -> Sequence[Json]:
        tags = self._tags(service).items()
        return [record for record in records if tags <= mapping(record["tags"]).items()]

    def owner_of(self, record: Json) -> OwnedBalancer | None:
        tags = mapping(record["tags"])
        is_ours = tags.get("cluster") == self._cluster
        return OwnedBalancer(record["name"], text(tags.get("service"))) if is_ours else None

    def check_service(self, service: Service) -> None:
        desired_record(service)

    async def request(self, service: Service, own: Sequence[Json]) -> BalancerRequest:
        mark = {"name": self.name_for(service), "tags": self._tags(service)}
        return BalancerRequest(mark, desired_record(service))

    async def desired(
        self, request: BalancerRequest, nodes: Sequence[Node], own: Sequence[Json]
    ) -> Sequence[Desired]:
        backends = await self.desired_backends({}, nodes)
        return [Desired(own[0] if own else None, request.settings | backends.content)]

    async def desired_backends(self, record: Json, nodes: Sequence[Node]) -> Desired:
        return Desired(record, {"backends": machine_ids(nodes)})

    def differences(self, desired: Json, record: Json) -> Json:
        changes = differences(desired, record)
        for field in IMMUTABLE_FIELDS:
            if field in changes:
                raise Refused(
                    f"the {field} of load balancer {record['name']} is {record[field]}, which "
                    f"cannot be changed after creation; recreate the Service for {desired[field]}"
                )
        return changes

    def check_ready(self, record: Json) -> None:
        if record["state"] != "active":
            raise RetryAfter(f"load balancer {record['name']} is {record['state']}", POLL_INTERVAL)

    async def create(self, request: BalancerRequest, desired: Desired) -> Json:
        return _record(await self._call("Create", "POST", "", request.mark | desired.content))

    async def update(self, record: Json, changes: Json) -> Json:
        return _record(await self._call("Update", "PATCH", record["name"], changes))

    async def remove(self, record: Json) -> None:
        """Success once the cloud says that it is gone, not when it starts to go."""
        self.check_ready(record)
        await self._call("Delete", "DELETE", record["name"])
        for left in await self._read(record["name"]):
            raise RetryAfter(f"load balancer {left['name']} is {left['state']}", POLL_INTERVAL)

    def balancer(self, request: BalancerRequest, records: Sequence[Json]) -> Balancer:
        ingress = tuple(Ingress(ip=record["ip"], ip_mode=IpMode.VIP) for record in records)
        return Balancer(records[0]["name"], ingress)

    def id_of(self, record: Json) -> str:
        return text(record.get("name"))

    async def _read(self, name: str) -> list[Json]:
        found = await self._look_up(name)
        records = objects_with(found.records, "name", name)
        if len(records) + (name in found.not_found) != 1:
            raise CloudError(f"the cloud reports neither that {name} exists nor that it does not")
        return [_record(record) for record in records]

    async def _read_named(self, names: Sequence[str]) -> LookupResult:
        return await self._api.look_up(LIST, PATH, "names", names)

    async def _call(self, verb: str, method: str, name: str, body: Json | None = None) -> Any:
        path = f"{PATH}/{quote(name, safe='')}" if name else PATH
        return await self._api.write(f"{verb}LoadBalancer", method, path, body)

    def _tags(self, service: Service) -> dict[str, str]:
        return {"cluster": self._cluster, "service": service.uid}


def desired_record(service: Service) -> Json:
    """What the record of the Service's balancer has to say, but for its backends."""
    health, ranges = service.health_check, service.source_ranges()
    desired: Json = {
        "scheme": scheme_of(service),
        "listeners": [_listener(port) for port in service.node_ports()],
        "source_ranges": [] if admits_everybody(ranges) else sorted(map(str, ranges)),
        "health_check": {"path": health.path, "port": health.port} if health else {},
    }
    if service.requested_ip:
        desired["ip"] = _ip(service.requested_ip)
    return desired


def scheme_of(service: Service) -> str:
    """The scheme an annotation asks for; raises `Refused` for what we do not know."""
    for key in service.annotations:
        if key.startswith(PREFIX) and key != SCHEME_ANNOTATION:
            raise Refused(f"annotation {key} is not known; there is only {SCHEME_ANNOTATION}")
    scheme = service.annotations.get(SCHEME_ANNOTATION, SCHEMES[0])
    if scheme not in SCHEMES:
        raise Refused(
            f"annotation {SCHEME_ANNOTATION} is {scheme!r}; it may be {' or '.join(SCHEMES)}"
        )
    return scheme


def _listener(port: ServicePort) -> Json:
    if port.protocol not in PROTOCOLS:
        raise Refused(f"port {port.number} is {port.protocol}: use {' or '.join(PROTOCOLS)}")
    return {"protocol": port.protocol, "port": port.number, "node_port": port.node_port}


def _ip(value: str) -> str:
    try:
        return str(ip_address(value))
    except ValueError:
        raise Refused(f"spec.loadBalancerIP {value!r} is not an IP address") from None


def machine_ids(nodes: Iterable[Node]) -> list[str]:
    """The machines of Nodes that have one in this cloud, each once."""
    prefix = f"{SCHEME}://"
    ids = (node.provider_id for node in nodes)
    return sorted({value.removeprefix(prefix) for value in ids if value.startswith(prefix)} - {""})


def _record(answer: object) -> Json:
    """The record in an answer, if it is one."""
    record = answer if isinstance(answer, dict) else {}
    texts = (record.get(field) for field in ("name", "state", "ip", "scheme"))
    if not all(isinstance(value, str) and value for value in texts) or "tags" not in record:
        raise CloudError("the cloud's record of a load balancer lacks what it must have")
    return record
