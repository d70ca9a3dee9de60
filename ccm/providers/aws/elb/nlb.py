"""Network Load Balancers as an `ElbType`: read, planned for, and changed."""

from collections.abc import Iterable, Mapping, Sequence

from ccm.cloud.gate import warnings_as_notes
from ccm.errors import Refused
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, Node, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import MAX_LISTED, retry_on
from ccm.providers.aws.elb import nlb_plan
from ccm.providers.aws.elb.address_type import client_ranges, with_address_type
from ccm.providers.aws.elb.annotations import NLB, Annotations
from ccm.providers.aws.elb.calls import ApiCall
from ccm.providers.aws.elb.executor import NOT_FOUND, ElbExecutor
from ccm.providers.aws.elb.load_balancers import (
    ElbDependencies,
    NodeIngress,
    Plan,
    to_balancer,
)
from ccm.providers.aws.elb.nlb_desired import (
    DesiredNlb,
    Nlb,
    ObservedNlb,
    desired_nlb,
    target_groups,
    with_groups,
)
from ccm.providers.aws.elb.nlb_ingress import Owner, node_rules, plan_node_ingress
from ccm.providers.aws.elb.nlb_reads import (
    FIND,
    TAGS,
    Detail,
    describe_nlb,
    describe_tags,
    find_nlb,
    list_groups,
    with_attributes,
    with_group_attributes,
    with_listeners,
    with_targets,
)
from ccm.providers.aws.elb.own_groups import (
    GROUP_TO_CREATE,
    ElbSecurityGroups,
    nlb_group_name,
)
from ccm.providers.aws.elb.request import (
    IPV4,
    IPV6,
    LoadBalancerRequest,
    read_request,
    target_instances,
)
from ccm.providers.aws.security_groups import IngressChange, IngressRule, SecurityGroup
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import SERVICE_TAG, ClusterTag, Tags, read_tags
from ccm.providers.aws.vpc import BackendInstance

CLIENT_IP = "preserve_client_ip.enabled"


class Nlbs:
    """One load balancer a Service, with a target group for each port."""

    def __init__(self, elb: ElbDependencies) -> None:
        self._elb, self._api, self._vpc = elb, elb.api, elb.vpc
        self._own_groups = ElbSecurityGroups(elb)
        self._opened = dict[str, frozenset[IngressRule]]()
        """By the name of the load balancer; no rules of one that is gone and whose others have."""

    def get(self, service: Service) -> Balancer | None:
        record = find_nlb(self._api, service.default_balancer_name)
        if record is None:
            return None
        arn = text(record.get("LoadBalancerArn"))
        with retry_on(NOT_FOUND):
            tags = self._elb.tags_of(service, TAGS, "ResourceArn", arn)
        return self._elb.balancer(service, text(record.get("DNSName")), tags)

    def has_leftovers(self, service: Service) -> bool:
        """As `ElbType`: its target groups, and a security group of its own, go last."""
        tag = self._elb.tagging.cluster_tag()
        if self._describe(service, tag, needs_groups=False).groups:
            return True
        if not self._elb.config.manages_nlb_groups:
            return False
        return self._own_groups.has_leftover(self._group_name(service), tag)

    def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        """As `ElbType`; what is refused is refused before anything is changed."""
        tag = self._elb.tagging.cluster_tag()
        request = read_request(service, NLB, tag)
        details = [with_listeners, with_attributes, with_targets]
        if request.annotations.text("target-group-attributes"):
            details.append(with_group_attributes)
        observed = self._describe(service, tag, details)
        if observed.nlb:
            request = request.keeping_scheme(observed.nlb.is_internal)
        group_name = self._group_name(service)
        own, has_own = self._own_group(request, group_name, observed.nlb, tag)
        if not has_own:
            self._refuse_unenforced(request)
        subnets = self._subnets(request, tag, observed.nlb)
        request = with_address_type(request, subnets, observed.nlb, has_own)
        family = request.target_family
        backends, targets = self._backends(request.annotations, nodes, observed, family)
        _note_left_out(request, backends, targets)
        probe = self._elb.config.shared_probe
        desired = desired_nlb(request, subnets, targets, tag.cluster_id, probe, observed.nlb)

        def calls() -> list[ApiCall]:
            group, current = own.id if own else GROUP_TO_CREATE, observed.nlb
            groups = current.groups if current and group in current.groups else (group,)
            wanted = with_groups(desired, groups) if has_own else desired
            return list(nlb_plan.plan(wanted, observed, self._vpc.id))

        calls()
        self._check_addresses(request, observed.nlb, tag)
        cidrs = [cidr for subnet in subnets for cidr in subnet.cidrs]
        opened = node_rules(desired, request.ranges, cidrs, request.node_health_check, probe)
        ingress = self._node_ingress(request.name, opened, tag)
        with warnings_as_notes(request.annotations):
            if has_own:
                own = self._own_groups.ensure(own, group_name, request)
            ingress.open(backends)
            executor = self._execute(calls(), observed)
            ingress.close()
            ingress.close_left(targets)
            if own and not has_own:
                self._own_groups.delete(own)
            executor.check()
            warnings = *request.annotations.warnings, *ingress.why_partly()
        return to_balancer(request.name, executor.hostname, warnings)

    def update_nodes(self, service: Service, nodes: Sequence[Node]) -> bool:
        """As `ElbType`; the rules of the nodes' groups are those for what there is."""
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag, [with_targets])
        if observed.nlb is None:
            return False
        families = {group.family for group in observed.groups.values()}
        family = IPV6 if IPV6 in families else IPV4
        backends, targets = self._backends(Annotations.of(service), nodes, observed, family)
        ports = {port.get("nodePort") for port in service.ports}  # what it gave up is another's
        groups = {n: group for n, group in observed.groups.items() if group.port in ports}
        current = DesiredNlb(observed.nlb, observed.listeners, groups)
        cidrs = [cidr for item in self._current_subnets(observed.nlb) for cidr in item.cidrs]
        ranges = client_ranges(ranges_if_valid(service), observed.nlb.address_type)
        probe = self._elb.config.shared_probe
        opened = node_rules(current, ranges, cidrs, service.health_check, probe)
        without_nodes = frozenset[IngressRule]()  # its node ports may be another's
        ingress = self._node_ingress(name, opened if nodes else without_nodes, tag)
        ingress.open(backends)
        self._execute(nlb_plan.plan_targets(targets, observed), observed).check()
        ingress.close_left(targets)
        ingress.check()
        return True

    def delete(self, service: Service) -> None:
        """As `ElbType`; what is left after an interruption is found by the target groups."""
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag, needs_groups=False)
        groups = self._elb.security_groups()
        own = self._own_groups.leftover(groups, self._group_name(service), tag)  # in any mode
        self._execute(nlb_plan.plan_deletion(observed), observed)
        self._close_nodes(name, groups, tag)
        self._execute(nlb_plan.plan_group_deletion(observed), observed)
        if own:
            self._own_groups.delete(own)

    def _group_name(self, service: Service) -> str:
        return nlb_group_name(service, self._elb.cluster_name)

    def _own_group(
        self, request: LoadBalancerRequest, name: str, observed: Nlb | None, tag: ClusterTag
    ) -> tuple[SecurityGroup | None, bool]:
        """The security group that was made for it, and whether it is to have such a one.

        One that was created without any never gets one; and one that has its own keeps it when
        the configuration does not ask for any more.
        """
        is_managed = self._elb.config.manages_nlb_groups
        if not (observed.groups if observed else is_managed):
            return None, False
        own = self._own_groups.find(name, tag)
        is_attached = own and observed and own.id in observed.groups
        is_given = bool(request.annotations.csv("security-groups"))
        return own, not is_given and (is_managed or bool(is_attached))

    def _refuse_unenforced(self, request: LoadBalancerRequest) -> None:
        """Ranges are enforced by the nodes' groups, to which a client has to look like itself."""
        if not self._elb.config.manages_node_ingress:
            request.refuse_ranges("DisableSecurityGroupIngress leaves the nodes' groups alone")
        attributes = request.annotations.key_values("target-group-attributes")
        if attributes.get(CLIENT_IP, "true").lower() != "true":
            request.refuse_ranges(f"target group attribute {CLIENT_IP} hides who the client is")

    def _check_addresses(
        self, request: LoadBalancerRequest, observed: Nlb | None, tag: ClusterTag
    ) -> None:
        """Refuse Elastic IP addresses with another's mark; who may not read them sees none."""
        current = observed.subnets.values() if observed else ()
        own = {address.get("AllocationId") for address in current}
        if not (new := sorted({*request.annotations.csv("eip-allocations")} - own)):
            return
        read, name = self._api.call, "ec2:DescribeAddresses"
        answer = self._api.read_if_allowed(Json(), read, name, AllocationIds=new)
        for record in objects(answer.get("Addresses")):
            tags = read_tags(record.get("Tags"))
            if tag.is_foreign(tags) or tags.get(SERVICE_TAG, request.key) != request.key:
                raise Refused(
                    f"Elastic IP address {record.get('AllocationId')} is marked as another "
                    "cluster's or Service's"
                )

    def tags_by_name(self) -> Mapping[str, Tags]:
        records = self._api.list_pages(FIND, "LoadBalancers", PageSize=MAX_LISTED)
        names = {
            text(record.get("LoadBalancerArn")): text(record.get("LoadBalancerName"))
            for record in records
            if record.get("Type") == "network"
        }
        with retry_on(NOT_FOUND):
            tags = describe_tags(self._api, list(names))
        return {name: tags[arn] for arn, name in names.items()}

    def _describe(
        self,
        service: Service,
        tag: ClusterTag,
        details: Iterable[Detail] = (),
        needs_groups: bool = True,
    ) -> ObservedNlb:
        """The load balancer and its groups, with these details."""
        names = self._group_names(service, tag)
        with retry_on(NOT_FOUND):
            if needs_groups:
                groups = list_groups(self._api, service)
            else:
                groups = self._api.read_if_allowed(list[Json](), list_groups, self._api, service)
            observed = describe_nlb(self._elb, service, groups, names)
            for add in details:
                observed = add(self._api, observed)
        return observed

    def _subnets(
        self, request: LoadBalancerRequest, tag: ClusterTag, observed: Nlb | None
    ) -> list[Subnet]:
        """Where it is to live: it stays where it is, unless the Service names subnets."""
        if observed and not request.annotations.csv("subnets"):
            return self._current_subnets(observed)
        return self._elb.subnets_for(request, tag, observed.subnets if observed else ())

    def _current_subnets(self, observed: Nlb) -> list[Subnet]:
        in_use = observed.subnets
        return [subnet for subnet in self._vpc.subnets(in_use) if subnet.id in in_use]

    def _group_names(self, service: Service, tag: ClusterTag) -> frozenset[str]:
        """The names that its target groups have to have; none for a Service that is refused."""
        try:
            request = read_request(service, NLB, tag)
            probe = self._elb.config.shared_probe
            groups = target_groups(request, (), tag.cluster_id, probe)
            return frozenset(group.name for group in groups.values())
        except Refused:
            return frozenset()

    def _backends(
        self, annotations: Annotations, nodes: Sequence[Node], observed: ObservedNlb, family: str
    ) -> tuple[Sequence[BackendInstance], frozenset[str]]:
        groups = [group for group in observed.groups.values() if group.family == family]
        registered = frozenset[str]().union(*(group.targets for group in groups))
        wanted = target_instances(annotations, nodes)
        tag = self._elb.tagging.cluster_tag()
        return self._vpc.backends(
            wanted, registered, tag, only_running=True, needs_ipv6=family == IPV6
        )

    def _node_ingress(
        self, name: str, desired: frozenset[IngressRule], tag: ClusterTag
    ) -> NodeIngress:
        former, self._opened[name] = self._opened.get(name, frozenset()), desired
        return NodeIngress(self._elb, self._plan_nodes(name, desired, former), tag)

    def _close_nodes(self, name: str, groups: Iterable[SecurityGroup], tag: ClusterTag) -> None:
        """Close the nodes' groups to one that leads to none of them; others' rules stay."""
        former = self._opened.get(name, frozenset())
        ingress = NodeIngress(self._elb, self._plan_nodes(name, frozenset(), former), tag)
        ingress.close_everywhere(groups)
        ingress.check()
        self._opened.pop(name, None)
        if self._owner(name, former).has_heir:
            self._opened[name] = frozenset()

    def _plan_nodes(
        self, name: str, desired: frozenset[IngressRule], former: frozenset[IngressRule]
    ) -> Plan:
        def plan(group: SecurityGroup, is_open: bool) -> Iterable[IngressChange]:
            owner = self._owner(name, former)
            if is_open:
                return plan_node_ingress(group, desired, owner)
            return plan_node_ingress(group, frozenset(), owner) if owner.is_in(group) else ()

        return plan

    def _owner(self, name: str, former: frozenset[IngressRule]) -> Owner:
        """With what others have by now: a node port may have become theirs meanwhile."""
        others = dict(self._opened)  # other threads go on
        others.pop(name, None)
        return Owner(name, former, others)

    def _execute(self, calls: Iterable[ApiCall], observed: ObservedNlb) -> ElbExecutor:
        arns = {name: group.arn for name, group in observed.groups.items()}
        if observed.nlb:
            arns[observed.nlb.name] = observed.arn
        executor = ElbExecutor(self._api, observed.hostname, arns)
        executor.execute(calls)
        self._vpc.forget(executor.invalid_targets)
        return executor


def _note_left_out(
    request: LoadBalancerRequest, backends: Sequence[BackendInstance], targets: frozenset[str]
) -> None:
    """Return which instances are no targets of IPv6; `Refused` when that is all of them."""
    if request.target_family == IPV4:
        return
    lacking = [
        backend.id
        for backend in backends
        if not backend.has_primary_ipv6 and backend.id not in targets
    ]
    why = "targets of IPv6 need a primary IPv6 address, which an instance gets by enabling it for"
    if lacking and not targets:
        raise Refused(f"no node has one: {why} its network interface")
    if lacking:
        listed = ", ".join(lacking)
        request.annotations.notes.append(f"{listed} left out: {why} its network interface")


def ranges_if_valid(service: Service) -> tuple[str, ...]:
    """The permitted sources; no new ones while the Service has them in a form that is refused."""
    try:
        return tuple(map(str, service.source_ranges()))
    except Refused:
        return ()
