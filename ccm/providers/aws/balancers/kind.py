"""What every kind of balancer can do, and what their parts have in common."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ccm.errors import RetryAfter
from ccm.model.cloud import Balancer, Ingress, OwnedBalancer
from ccm.model.node import Node
from ccm.model.service import Service
from ccm.providers.aws.balancers.request import UID_TAG, Request
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.config import AwsConfig
from ccm.providers.aws.ingress import perform
from ccm.providers.aws.network import Network
from ccm.providers.aws.security_groups import Authorize, Group, Revoke, RuleChange
from ccm.providers.aws.subnets import Subnet, choose, pick
from ccm.providers.aws.tags import SERVICE, Mark, Ownership, Tags


class Kind(Protocol):
    """One kind of balancer; the methods are as those of `LoadBalancers`."""

    def get(self, service: Service) -> Balancer | None: ...

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer: ...

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> bool:
        """Replace the hosts; False when there is no such balancer."""
        ...

    def delete(self, service: Service) -> None: ...

    def has_left(self, service: Service) -> bool:
        """Whether there is anything of ours that `delete` would take away."""
        ...

    def owned(self) -> Sequence[OwnedBalancer]: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all kinds work with."""

    api: AwsApi
    network: Network
    ownership: Ownership
    config: AwsConfig

    def subnets_for(self, request: Request, mark: Mark, present: Collection[str]) -> list[Subnet]:
        """Where the balancer is to live; `present` are the subnets that it lives in."""
        subnets, named = self.network.subnets(), request.annotations.listed("subnets")
        is_tagged = any(mark.is_on(subnet.tags) for subnet in subnets)
        if not named and not is_tagged and self.config.subnet_id:
            named = [self.config.subnet_id]
        if named:
            return pick(subnets, named)
        return choose(subnets, mark, request.is_internal, present)


class NodeRules:
    """The rules of one balancer in the nodes' groups: opened before it works, closed afterwards."""

    def __init__(
        self,
        around: Surroundings,
        groups: Callable[[], Iterable[Group]],
        plan: Callable[[Group], Iterable[RuleChange]],
    ) -> None:
        self._around, self._groups, self._plan = around, groups, plan
        self._has_surplus = False

    def open(self) -> None:
        """Add what is missing."""
        self._change(Authorize)

    def close(self, always: bool = False) -> None:
        """Take away what is no longer wanted, if `open` saw any; `always` looks first."""
        if self._has_surplus or always:
            self._change(Revoke)

    def _change(self, verb: type[Authorize] | type[Revoke]) -> None:
        network = self._around.network
        with network.rules:
            planned = [change for group in self._groups() for change in self._plan(group)]
            self._has_surplus = any(isinstance(change, Revoke) for change in planned)
            for change in planned:
                if isinstance(change, verb):
                    perform(self._around.api, change)


def as_balancer(name: str, hostname: str) -> Balancer:
    """The balancer as Kubernetes has to know it; it may take minutes until its name resolves."""
    if not hostname:
        raise RetryAfter(f"balancer {name} has no host name yet", 5.0)
    return Balancer(name, (Ingress(hostname=hostname),))


def owned_by(mark: Mark, name: str, tags: Tags) -> OwnedBalancer | None:
    """The balancer as one of ours; None when it is not."""
    if not mark.owns(tags) or SERVICE not in tags:
        return None
    return OwnedBalancer(name, tags.get(UID_TAG, ""), tags[SERVICE])
