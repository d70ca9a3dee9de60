"""The balancers of AWS as the controllers see them: the kind that a Service asks for."""

from collections.abc import Mapping, Sequence

from ccm.errors import Refused
from ccm.model.cloud import Balancer, OwnedBalancer
from ccm.model.node import Node
from ccm.model.service import Feature, Service
from ccm.providers.aws.annotations import CLASSIC, NETWORK, kind_of
from ccm.providers.aws.balancers.classic.balancers import ClassicBalancers
from ccm.providers.aws.balancers.kind import Kind, Surroundings
from ccm.providers.aws.balancers.network.balancers import NetworkBalancers
from ccm.providers.aws.balancers.request import name_of


class AwsLoadBalancers:
    """A Service has one balancer; one of another kind goes as soon as that is there."""

    supported_features = frozenset({Feature.UDP, Feature.MIXED_PROTOCOLS, Feature.SOURCE_RANGES})

    def __init__(self, around: Surroundings) -> None:
        self._usual = around.config.balancer_type
        self._kinds: Mapping[str, Kind] = {
            CLASSIC: ClassicBalancers(around),
            NETWORK: NetworkBalancers(around),
        }

    def name_for(self, service: Service) -> str:
        return name_of(service)

    def get(self, service: Service) -> Balancer | None:
        found = (kind.get(service) for kind in self._kinds.values())
        return next((balancer for balancer in found if balancer), None)

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer:
        wanted = kind_of(service, self._usual)
        balancer = self._kinds[wanted].ensure(service, hosts)
        for name, kind in self._kinds.items():
            if name != wanted and kind.has_left(service):
                kind.delete(service)
        return balancer

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> None:
        updated = [kind.update_hosts(service, hosts) for kind in self._kinds.values()]
        if not any(updated):
            raise Refused(f"there is no balancer {name_of(service)}")

    def delete(self, service: Service) -> None:
        for kind in self._kinds.values():
            kind.delete(service)

    def owned(self) -> Sequence[OwnedBalancer]:
        return [one for kind in self._kinds.values() for one in kind.owned()]
