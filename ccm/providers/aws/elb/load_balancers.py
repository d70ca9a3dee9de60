"""The load balancers of AWS as the controllers see them: of the type that a Service asks for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ccm.errors import Refused, RetryAfter
from ccm.model.cloud import Balancer, Ingress, OwnedBalancer
from ccm.model.objects import Node
from ccm.model.service import Feature, Service
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.config import AwsConfig
from ccm.providers.aws.elb.annotations import load_balancer_type
from ccm.providers.aws.elb.request import LoadBalancerRequest, load_balancer_name
from ccm.providers.aws.subnets import Subnet, discover_subnets, named_subnets
from ccm.providers.aws.tags import SERVICE_TAG, SERVICE_UID_TAG, ClusterTag, ClusterTagging, Tags
from ccm.providers.aws.vpc import Vpc

HOSTNAME_RETRY = 5.0  # seconds until a load balancer without a host name is read again


@dataclass(frozen=True, slots=True)
class FoundElb:
    """A load balancer of the right name, whoever owns it."""

    hostname: str
    tags: Tags


class ElbType(Protocol):
    """One type of load balancer; the methods are as those of `LoadBalancers`."""

    def find(self, name: str) -> FoundElb | None:
        """The load balancer of this name."""
        ...

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer: ...

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> bool:
        """Replace the hosts; False when there is no such load balancer."""
        ...

    def delete(self, service: Service) -> None: ...

    def has_leftovers(self, service: Service) -> bool:
        """Whether `delete` would delete anything when the load balancer itself is gone."""
        ...

    def tags_by_name(self) -> Mapping[str, Tags]:
        """The tags of all load balancers of this type."""
        ...


class AwsLoadBalancers:
    """A Service has one load balancer; one of another type goes as soon as that is there."""

    supported_features = frozenset({Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.SOURCE_RANGES})

    def __init__(
        self, types: Mapping[str, ElbType], tagging: ClusterTagging, default_type: str
    ) -> None:
        self._types, self._tagging, self._default_type = types, tagging, default_type

    def name_for(self, service: Service) -> str:
        return load_balancer_name(service)

    def get(self, service: Service) -> Balancer | None:
        found = (self._get(elb_type, service) for elb_type in self._types.values())
        return next((balancer for balancer in found if balancer), None)

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer:
        wanted = load_balancer_type(service, self._default_type)
        balancer = self._types[wanted].ensure(service, hosts)
        for name, elb_type in self._types.items():
            if name != wanted and (self._get(elb_type, service) or elb_type.has_leftovers(service)):
                elb_type.delete(service)
        return balancer

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> None:
        updated = [elb_type.update_hosts(service, hosts) for elb_type in self._types.values()]
        if not any(updated):
            raise Refused(f"there is no load balancer {load_balancer_name(service)}")

    def delete(self, service: Service) -> None:
        for elb_type in self._types.values():
            elb_type.delete(service)

    def owned(self) -> Sequence[OwnedBalancer]:
        tag = self._tagging.cluster_tag()
        return [
            OwnedBalancer(name, tags.get(SERVICE_UID_TAG, ""), tags[SERVICE_TAG])
            for elb_type in self._types.values()
            for name, tags in elb_type.tags_by_name().items()
            if tag.owns(tags) and SERVICE_TAG in tags
        ]

    def _get(self, elb_type: ElbType, service: Service) -> Balancer | None:
        name = load_balancer_name(service)
        found = elb_type.find(name)
        is_ours = found and self._tagging.cluster_tag().owns_for(service, found.tags)
        return to_balancer(name, found.hostname) if found and is_ours else None


@dataclass(frozen=True, slots=True)
class ElbDependencies:
    """What every type of load balancer works with."""

    api: AwsApi
    vpc: Vpc
    tagging: ClusterTagging
    config: AwsConfig

    def subnets_for(
        self, request: LoadBalancerRequest, tag: ClusterTag, in_use: Collection[str]
    ) -> list[Subnet]:
        """Where the load balancer is to live; `in_use` are the subnets that it lives in."""
        subnets, names = self.vpc.subnets(), request.annotations.csv("subnets")
        is_tagged = any(tag.is_on(subnet.tags) for subnet in subnets)
        if not names and not is_tagged and self.config.subnet_id:
            names = [self.config.subnet_id]
        if names:
            return named_subnets(subnets, names)
        return discover_subnets(subnets, tag, request.is_internal, in_use)


def to_balancer(name: str, hostname: str) -> Balancer:
    """The load balancer for the Service's status; it may take minutes until its name resolves."""
    if not hostname:
        raise RetryAfter(f"load balancer {name} has no host name yet", HOSTNAME_RETRY)
    return Balancer(name, (Ingress(hostname=hostname),))
