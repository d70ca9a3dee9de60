"""Balancers of the simulated cloud for Services: one record each, read before it is written."""

import time
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

from ccm.cloud.lookup import batches
from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError, NotFound, Refused, RetryAfter
from ccm.model.cloud import Balancer, Ingress, IpMode, OwnedBalancer
from ccm.model.objects import Json, Node, mapping, text
from ccm.model.service import Feature, Service, ServicePort, admits_everybody
from ccm.providers.simulated.api import LookupResult, SimulatedApi
from ccm.providers.simulated.instances import SCHEME

PREFIX = "service.beta.kubernetes.io/simulated-load-balancer-"
PATH, LIST = "/v1/load-balancers", "ListLoadBalancers"
SCHEME_ANNOTATION = f"{PREFIX}scheme"
SCHEMES = ("internet", "internal")
PROTOCOLS = ("TCP", "UDP")
ABSENT_BELIEVED = 60.0  # seconds in which a backend that the cloud does not know is left out
POLL_INTERVAL = 1.0  # seconds after which a balancer that is at work is looked at again

IMMUTABLE_FIELDS = ("scheme", "ip")
"""What the cloud sets for a balancer's life."""


class SimulatedLoadBalancers:
    """The balancers that carry our tags; a change is one call that names only what differs."""

    supported_features = frozenset(
        {Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.SOURCE_RANGES, Feature.FIXED_IP}
    )
    privileged_annotations = frozenset[str]()

    def __init__(self, api: SimulatedApi, cluster: str, page_size: int) -> None:
        self._api, self._cluster, self.batch_size = api, cluster, page_size
        self._absent: dict[str, float] = {}  # backends without a machine, until when to believe it
        self._look_up = SharedRead(self._read_named, page_size)

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    async def get(self, service: Service) -> Balancer | None:
        record = await self._read(service)
        return _balancer(record) if record and self._is_ours(record, service) else None

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        """As the interface; a machine that the cloud no longer has is left out."""
        desired = desired_record(service) | {"backends": self._live(nodes)}
        record = await self._read(service)
        if record is None:
            record = await self._create(service, desired)
        else:
            self._check_ours(record, service)
            record = await self._update(record, desired)
        if record["state"] in ("provisioning", "deleting"):
            raise _in_progress(record)
        return _balancer(record)

    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        record = await self._read(service)
        if record is None:
            raise Refused(f"there is no load balancer {self.name_for(service)}")
        self._check_ours(record, service)
        await self._update(record, {"backends": self._live(nodes)})

    async def delete(self, service: Service) -> None:
        """Success once the cloud says that it is gone, not when it starts to go."""
        record = await self._read(service)
        if record is None:
            return
        self._check_ours(record, service)
        if record["state"] != "active":
            raise _in_progress(record)
        try:
            await self._call("Delete", "DELETE", record["name"])
        except NotFound:
            return
        if left := await self._read(service):
            raise _in_progress(left)

    async def owned(self) -> Sequence[OwnedBalancer]:
        items = await self._api.items(LIST, PATH)
        records = [_record(item) for item in items]
        return [
            OwnedBalancer(record["name"], text(mapping(record["tags"]).get("service")))
            for record in records
            if mapping(record["tags"]).get("cluster") == self._cluster
        ]

    async def _create(self, service: Service, desired: Json) -> Json:
        name = self.name_for(service)
        body = {"name": name, "tags": self._tags(service), **desired}
        try:
            return _record(await self._call("Create", "POST", "", body))
        except Refused as refusal:
            if await self._read(service):  # made meanwhile, or by a call whose answer was lost
                raise RetryAfter(f"load balancer {name} appeared", POLL_INTERVAL) from refusal
            await self._find_absent(desired, refusal)
            raise

    async def _update(self, record: Json, desired: Json) -> Json:
        """Change what differs, if anything does."""
        changes = differences(record, desired)
        for field in IMMUTABLE_FIELDS:
            if field in changes:
                raise Refused(
                    f"the {field} of load balancer {record['name']} is {record[field]} for its "
                    f"life: delete the Service and create it again to have {desired[field]}"
                )
        if not changes:
            return record
        if record["state"] != "active":
            raise _in_progress(record)
        try:
            return _record(await self._call("Update", "PATCH", record["name"], changes))
        except NotFound as gone:
            raise RetryAfter(f"load balancer {record['name']} went away", POLL_INTERVAL) from gone
        except Refused as refusal:
            await self._find_absent(desired, refusal)
            raise

    def _live(self, nodes: Sequence[Node]) -> list[str]:
        now = time.monotonic()
        return [backend for backend in machine_ids(nodes) if self._absent.get(backend, 0.0) < now]

    async def _find_absent(self, desired: Json, refusal: Refused) -> None:
        """Raise `RetryAfter` when the cloud lacks backends, which the next call leaves out.

        Not here and now: the backends may have changed while this call waited for its grants.
        """
        backends: list[str] = desired["backends"]
        live: set[str] = set()
        for batch in batches(backends, self.batch_size):
            found = await self._api.machines("ids", batch)
            machines = [mapping(record) for record in found.records]
            live |= {text(m.get("id")) for m in machines if m.get("power") != "terminated"}
        if absent := set(backends) - live:
            now = time.monotonic()
            believed = {backend: until for backend, until in self._absent.items() if until > now}
            self._absent = believed | dict.fromkeys(absent, now + ABSENT_BELIEVED)
            raise RetryAfter(f"{len(absent)} backends have no machine any more", 0.0) from refusal

    async def _read(self, service: Service) -> Json | None:
        name = self.name_for(service)
        found = await self._look_up(name)
        records = [one for one in found.records if mapping(one).get("name") == name]
        if len(records) + (name in found.not_found) != 1:
            raise CloudError(f"the cloud says neither that {name} is there nor that it is not")
        return _record(records[0]) if records else None

    async def _read_named(self, names: Sequence[str]) -> LookupResult:
        return await self._api.look_up(LIST, PATH, "names", names)

    async def _call(self, verb: str, method: str, name: str, body: Json | None = None) -> Any:
        path = f"{PATH}/{quote(name, safe='')}" if name else PATH
        return await self._api.write(f"{verb}LoadBalancer", method, path, body)

    def _tags(self, service: Service) -> dict[str, str]:
        return {"cluster": self._cluster, "service": service.uid}

    def _is_ours(self, record: Json, service: Service) -> bool:
        return self._tags(service).items() <= mapping(record["tags"]).items()

    def _check_ours(self, record: Json, service: Service) -> None:
        if not self._is_ours(record, service):
            raise Refused(
                f"load balancer {record['name']} is not tagged as this cluster's for this "
                f"Service ({self._tags(service)}): it is not touched; rename or tag it by hand"
            )


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


def differences(record: Json, desired: Json) -> Json:
    """The fields of `desired` that `record` does not have; the order in a list says nothing."""
    return {
        key: value
        for key, value in desired.items()
        if _comparable(record.get(key)) != _comparable(value)
    }


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(repr(sorted(v.items())) if isinstance(v, dict) else repr(v) for v in value)
    return value


def _record(answer: object) -> Json:
    """The record in an answer, if it is one."""
    record = answer if isinstance(answer, dict) else {}
    texts = (record.get(field) for field in ("name", "state", "ip", "scheme"))
    if not all(isinstance(value, str) and value for value in texts) or "tags" not in record:
        raise CloudError("the cloud's record of a load balancer lacks what it must have")
    return record


def _balancer(record: Json) -> Balancer:
    return Balancer(record["name"], (Ingress(ip=record["ip"], ip_mode=IpMode.VIP),))


def _in_progress(record: Json) -> RetryAfter:
    return RetryAfter(f"load balancer {record['name']} is {record['state']}", POLL_INTERVAL)
