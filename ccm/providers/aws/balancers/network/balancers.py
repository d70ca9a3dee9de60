"""Network load balancers as a `Kind`: read, decide, act."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from ccm.errors import Refused, RetryAfter
from ccm.model.cloud import Balancer, OwnedBalancer
from ccm.model.node import Node
from ccm.model.objects import text
from ccm.model.service import Service
from ccm.providers.aws.annotations import NETWORK, Annotations
from ccm.providers.aws.balancers.kind import NodeRules, Surroundings, as_balancer, owned_by
from ccm.providers.aws.balancers.network import plan as plans
from ccm.providers.aws.balancers.network import rules
from ccm.providers.aws.balancers.network.desired import desired
from ccm.providers.aws.balancers.network.perform import GONE, Performer
from ccm.providers.aws.balancers.network.read import (
    PAGE,
    find_balancer,
    read,
    read_all_tags,
    with_attributes,
    with_group_attributes,
    with_listeners,
    with_targets,
)
from ccm.providers.aws.balancers.network.state import Seen, Wanted
from ccm.providers.aws.balancers.request import is_marked, name_of, read_request, targets_of
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.network import Host
from ccm.providers.aws.security_groups import Group, Rule
from ccm.providers.aws.tags import Mark

WHOLE = (with_listeners, with_attributes, with_group_attributes, with_targets)

T = TypeVar("T")


class NetworkBalancers:
    """One balancer a Service, with a target group for each port."""

    def __init__(self, around: Surroundings) -> None:
        self._around, self._api, self._network = around, around.api, around.network

    def get(self, service: Service) -> Balancer | None:
        record = find_balancer(self._api, name_of(service))
        if record is None:
            return None
        arn = text(record.get("LoadBalancerArn"))
        tags = read_all_tags(self._api, [arn])[arn]
        is_ours = is_marked(service, self._around.ownership.mark(), tags)
        return as_balancer(name_of(service), text(record.get("DNSName"))) if is_ours else None

    def has_left(self, service: Service) -> bool:
        """As `Kind`; the balancer itself goes last, so it tells for all the rest."""
        return self.get(service) is not None

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer:
        mark = self._around.ownership.mark()
        request = read_request(service, NETWORK, mark)
        seen = self._read(service, mark, *WHOLE)
        present = seen.balancer.subnets.keys() if seen.balancer else ()
        subnets = self._around.subnets_for(request, mark, present)
        asked = targets_of(request.annotations, hosts)
        ready, targets = self._hosts(asked, seen)
        probe = self._around.config.shared_probe
        wanted = desired(request, subnets, targets, mark.cluster_id, probe)
        steps = list(plans.plan(wanted, seen))
        cidrs = [subnet.cidr for subnet in subnets]
        opened = rules.node_rules(wanted, request.ranges, cidrs, request.node_check)
        nodes = self._node_rules(ready, mark, opened, request.name)
        nodes.open()
        performer = self._perform(steps, seen)
        nodes.close()
        performer.check_room()
        return as_balancer(request.name, performer.hostname)

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> bool:
        """As `Kind`; the rules of the nodes' groups are those for what there is."""
        mark = self._around.ownership.mark()
        seen = self._read(service, mark, with_targets)
        if seen.balancer is None:
            return False
        ready, targets = self._hosts(targets_of(Annotations.of(service), hosts), seen)
        there = Wanted(seen.balancer, seen.listeners, seen.groups)
        subnets = self._network.subnets()
        cidrs = [subnet.cidr for subnet in subnets if subnet.id in seen.balancer.subnets]
        opened = rules.node_rules(there, ranges_if_valid(service), cidrs, service.health_check)
        self._node_rules(ready, mark, opened, name_of(service)).open()
        self._perform(plans.plan_targets(targets, seen), seen).check_room()
        return True

    def delete(self, service: Service) -> None:
        mark = self._around.ownership.mark()
        seen = self._read(service, mark, with_listeners, with_attributes)
        steps = list(plans.plan_deletion(seen))
        if self._around.config.may_open_nodes:
            self._close_nodes(name_of(service))
        self._perform(steps, seen)

    def owned(self) -> Sequence[OwnedBalancer]:
        mark = self._around.ownership.mark()
        records = self._api.pages("elbv2:DescribeLoadBalancers", "LoadBalancers", PageSize=PAGE)
        names = {
            text(one.get("LoadBalancerArn")): text(one.get("LoadBalancerName"))
            for one in records
            if one.get("Type") == "network"
        }
        tags = self._retrying(lambda: read_all_tags(self._api, list(names)))
        found = (owned_by(mark, name, tags[arn]) for arn, name in names.items())
        return [one for one in found if one]

    def _read(self, service: Service, mark: Mark, *more: Callable[[AwsApi, Seen], Seen]) -> Seen:
        """What there is, with `more` of it than the balancer and its groups."""

        def look() -> Seen:
            seen = read(self._api, service, mark)
            for add in more:
                seen = add(self._api, seen)
            return seen

        return self._retrying(look)

    def _retrying(self, look: Callable[[], T]) -> T:
        """What `look` finds; `RetryAfter` when a part of it went away meanwhile."""
        try:
            return look()
        except AwsError as error:
            if error.code in GONE:
                raise RetryAfter(f"{error}: read again", 1.0) from error
            raise

    def _hosts(self, asked: Collection[str], seen: Seen) -> tuple[Sequence[Host], frozenset[str]]:
        """The instances as EC2 has them, and those that are to be targets.

        A new one has to run. One that is a target stays, whatever is said about it now.
        """
        groups = seen.groups.values()
        registered = frozenset[str]().union(*(group.targets for group in groups))
        hosts = self._network.read_anew(asked, set(asked) - registered)
        running = {host.id for host in hosts if host.is_running}
        return hosts, frozenset(running | (registered & set(asked)))

    def _node_rules(
        self, hosts: Sequence[Host], mark: Mark, wanted: frozenset[Rule], name: str
    ) -> NodeRules:
        def groups() -> Iterable[Group]:
            may_open = self._around.config.may_open_nodes
            return self._network.node_groups(hosts, mark) if may_open else ()

        return NodeRules(
            self._around, groups, lambda group: rules.rule_changes(group, wanted, name)
        )

    def _close_nodes(self, name: str) -> None:
        """Take the rules of a deleted balancer out of every group of the VPC."""

        def groups() -> Iterable[Group]:
            found = self._network.groups_in_vpc()
            return [group for group in found if rules.concerns(group, name)]

        nodes = NodeRules(
            self._around, groups, lambda group: rules.rule_changes(group, frozenset(), name)
        )
        nodes.close(always=True)

    def _perform(self, steps: Iterable[plans.Action], seen: Seen) -> Performer:
        performer = Performer(self._api, self._network.vpc, seen)
        for step in steps:
            performer.perform(step)
        self._network.forget(performer.missing)
        return performer


def ranges_if_valid(service: Service) -> tuple[str, ...]:
    """Who may come in; nobody new while the Service says it in a way that is refused."""
    try:
        return tuple(str(one) for one in service.source_ranges() if one.version == 4)
    except Refused:
        return ()
