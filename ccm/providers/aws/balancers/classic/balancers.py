"""Classic load balancers as a `Kind`: read, decide, act."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ccm.errors import RetryAfter
from ccm.model.cloud import Balancer, OwnedBalancer
from ccm.model.node import Node
from ccm.model.objects import Json, text
from ccm.model.service import Service
from ccm.providers.aws.annotations import CLASSIC, Annotations
from ccm.providers.aws.balancers.classic import plan as plans
from ccm.providers.aws.balancers.classic import rules
from ccm.providers.aws.balancers.classic.desired import desired
from ccm.providers.aws.balancers.classic.groups import OwnGroups
from ccm.providers.aws.balancers.classic.perform import Performer
from ccm.providers.aws.balancers.classic.read import (
    ABSENT,
    find_balancer,
    read,
    read_all_tags,
)
from ccm.providers.aws.balancers.classic.state import Seen
from ccm.providers.aws.balancers.kind import NodeRules, Surroundings, as_balancer, owned_by
from ccm.providers.aws.balancers.request import (
    Request,
    is_marked,
    name_of,
    read_request,
    targets_of,
)
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.network import Host
from ccm.providers.aws.security_groups import Group, RuleChange
from ccm.providers.aws.tags import Mark

NOT_MADE_YET = "sg-"


@dataclass(frozen=True, slots=True)
class Opening:
    """What nodes are opened for: the balancer's first group; `own` is the group made for it."""

    name: str
    group: str
    own: str = ""

    @property
    def own_if_done(self) -> str:
        """The balancer's own group, where it is not the one that nodes are opened for."""
        return self.own if self.own != self.group else ""


class ClassicBalancers:
    """One balancer a Service, with a security group of its own unless others are given."""

    def __init__(self, around: Surroundings) -> None:
        self._around, self._api, self._network = around, around.api, around.network
        self._own_groups = OwnGroups(around)

    def get(self, service: Service) -> Balancer | None:
        name = name_of(service)
        record = find_balancer(self._api, name)
        if record is None:
            return None
        tags = self._tags([name])[name]
        is_ours = is_marked(service, self._around.ownership.mark(), tags)
        return as_balancer(name, text(record.get("DNSName"))) if is_ours else None

    def has_left(self, service: Service) -> bool:
        """As `Kind`; its security group can only go after the balancer."""
        mark = self._around.ownership.mark()
        is_there = self.get(service) is not None
        return is_there or self._own_groups.find(name_of(service), mark) is not None

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer:
        mark = self._around.ownership.mark()
        request = read_request(service, CLASSIC, mark)
        seen, own = self._read(service, mark), self._own_groups.find(request.name, mark)
        present = seen.balancer.subnets if seen.balancer else ()
        subnets = self._around.subnets_for(request, mark, present)
        ready, targets = self._hosts(targets_of(request.annotations, hosts), seen)
        given, extra = self._given_groups(request)
        probe = self._around.config.shared_probe

        def steps(first: Sequence[str]) -> list[plans.Action]:
            wanted = desired(request, subnets, [*first, *extra], targets, probe)
            return list(plans.plan(wanted, seen))

        steps(given or [own.id if own else NOT_MADE_YET])  # refused before anything is changed
        if not given:
            own = self._own_groups.ensure(own, request)
        groups = given or [own.id if own else ""]
        opening = Opening(request.name, groups[0], own.id if own else "")
        nodes = self._node_rules(ready, mark, opening)
        nodes.open()
        hostname = self._perform(request.name, steps(groups), seen)
        nodes.close()
        if given and own:
            self._own_groups.delete(own)
        return as_balancer(request.name, hostname)

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> bool:
        mark, name = self._around.ownership.mark(), name_of(service)
        seen = self._read(service, mark)
        if seen.balancer is None:
            return False
        ready, targets = self._hosts(targets_of(Annotations.of(service), hosts), seen)
        if seen.balancer.groups:
            self._node_rules(ready, mark, Opening(name, seen.balancer.groups[0])).open()
        self._perform(name, plans.plan_instances(targets, seen.balancer.instances), seen)
        return True

    def delete(self, service: Service) -> None:
        """As `Kind`; the nodes are closed first, as only the balancer tells for which group."""
        mark, name = self._around.ownership.mark(), name_of(service)
        seen, own = self._read(service, mark), self._own_groups.find(name, mark)
        used = {*(seen.balancer.groups if seen.balancer else ()), *([own.id] if own else [])}
        if self._around.config.may_open_nodes:
            self._close_nodes(Opening(name, "", own.id if own else ""), used)
        if seen.balancer:
            self._api.call("elb:DeleteLoadBalancer", LoadBalancerName=name)
        if own:
            self._own_groups.delete(own)

    def owned(self) -> Sequence[OwnedBalancer]:
        mark = self._around.ownership.mark()
        names = [text(one.get("LoadBalancerName")) for one in self._all()]
        tags = self._tags(names)
        found = (owned_by(mark, name, tags[name]) for name in names)
        return [one for one in found if one]

    def _all(self) -> Sequence[Json]:
        return self._api.pages("elb:DescribeLoadBalancers", "LoadBalancerDescriptions")

    def _read(self, service: Service, mark: Mark) -> Seen:
        try:
            return read(self._api, service, mark)
        except AwsError as error:
            if error.code in ABSENT:
                raise RetryAfter(f"{error}: read again", 1.0) from error
            raise

    def _tags(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        try:
            return {name: dict(tags) for name, tags in read_all_tags(self._api, names).items()}
        except AwsError as error:
            if error.code in ABSENT:
                raise RetryAfter(f"{error}: read again", 1.0) from error
            raise

    def _given_groups(self, request: Request) -> tuple[list[str], list[str]]:
        """The groups to use instead of one of its own, and those to add to either."""
        given = request.annotations.listed("security-groups")
        shared = self._around.config.elb_security_group
        return given or ([shared] if shared else []), request.annotations.listed(
            "extra-security-groups"
        )

    def _hosts(self, asked: Collection[str], seen: Seen) -> tuple[Sequence[Host], frozenset[str]]:
        """The instances as EC2 has them, and those that are to be behind the balancer.

        A new one has to exist. One that is behind it stays, whatever is said about it now.
        """
        there = seen.balancer.instances if seen.balancer else frozenset()
        hosts = self._network.read_anew(asked, set(asked) - there)
        return hosts, frozenset({host.id for host in hosts} | (there & set(asked)))

    def _node_rules(self, hosts: Sequence[Host], mark: Mark, opening: Opening) -> NodeRules:
        wanted = frozenset({rules.node_rule(opening.group, opening.name)})

        def groups() -> Iterable[Group]:
            may_open = self._around.config.may_open_nodes
            return self._network.node_groups(hosts, mark) if may_open else ()

        def plan(group: Group) -> Iterable[RuleChange]:
            left = rules.sources(group, opening.name) - {opening.group}
            done = self._unused(left, opening.name)
            return rules.rule_changes(group, wanted, opening.own_if_done, done)

        return NodeRules(self._around, groups, plan)

    def _close_nodes(self, opening: Opening, used: set[str]) -> None:
        """Take the rules for a balancer that goes out of every group of the VPC."""

        def groups() -> Iterable[Group]:
            found = self._network.groups_in_vpc()
            return [group for group in found if self._is_open(group, opening.name, used)]

        def plan(group: Group) -> Iterable[RuleChange]:
            done = self._unused(used | rules.sources(group, opening.name), opening.name)
            return rules.rule_changes(group, frozenset(), opening.own, done)

        NodeRules(self._around, groups, plan).close(always=True)

    def _is_open(self, group: Group, name: str, used: Collection[str]) -> bool:
        is_known = any(rule.source in used for rule in group.rules)
        return is_known or bool(rules.sources(group, name))

    def _unused(self, groups: set[str], name: str) -> set[str]:
        """Those of the groups that no other balancer has."""
        if not groups:
            return set()
        others = [one for one in self._all() if one.get("LoadBalancerName") != name]
        return groups - {group for one in others for group in one.get("SecurityGroups") or ()}

    def _perform(self, name: str, steps: Iterable[plans.Action], seen: Seen) -> str:
        performer = Performer(self._api, name, seen.hostname)
        for step in steps:
            performer.perform(step)
        return performer.hostname
