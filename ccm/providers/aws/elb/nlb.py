"""Network Load Balancers as an `ElbType`: describe, plan, execute."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ccm.errors import Refused
from ccm.model.cloud import Balancer
from ccm.model.objects import Node, text
from ccm.model.service import Service
from ccm.providers.aws.api_actions import ApiCall
from ccm.providers.aws.client import AwsApi, retry_on
from ccm.providers.aws.elb import nlb_plan
from ccm.providers.aws.elb.annotations import NLB, Annotations
from ccm.providers.aws.elb.executor import NOT_FOUND, ElbExecutor
from ccm.providers.aws.elb.load_balancers import ElbDependencies, NodeIngress, to_balancer
from ccm.providers.aws.elb.nlb_api import (
    MAX_PER_PAGE,
    describe_nlb,
    describe_tags,
    find_nlb,
    with_attributes,
    with_group_attributes,
    with_listeners,
    with_targets,
)
from ccm.providers.aws.elb.nlb_desired import (
    DesiredNlb,
    ObservedNlb,
    desired_nlb,
    has_rules_of,
    node_rules,
    plan_node_ingress,
)
from ccm.providers.aws.elb.request import (
    LoadBalancerRequest,
    read_request,
    target_instances,
)
from ccm.providers.aws.security_groups import IngressRule
from ccm.providers.aws.tags import ClusterTag, Tags
from ccm.providers.aws.vpc import BackendInstance

CLIENT_IP = "preserve_client_ip.enabled"
ALL_DETAILS = (with_listeners, with_attributes, with_group_attributes, with_targets)


class Nlbs:
    """One load balancer a Service, with a target group for each port."""

    def __init__(self, elb: ElbDependencies) -> None:
        self._elb, self._api, self._vpc = elb, elb.api, elb.vpc

    def get(self, service: Service) -> Balancer | None:
        record = find_nlb(self._api, service.default_balancer_name)
        if record is None:
            return None
        arn = text(record.get("LoadBalancerArn"))
        tags = describe_tags(self._api, [arn])[arn]
        return self._elb.balancer(service, text(record.get("DNSName")), tags)

    def has_leftovers(self, service: Service) -> bool:
        """As `ElbType`: the load balancer itself goes last."""
        return False

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer:
        """As `ElbType`; what is refused is refused before anything is changed."""
        tag = self._elb.tagging.cluster_tag()
        request = read_request(service, NLB, tag)
        self._refuse_unenforced(request)
        observed = self._describe(service, tag, ALL_DETAILS)
        in_use = observed.nlb.subnets.keys() if observed.nlb else ()
        subnets = self._elb.subnets_for(request, tag, in_use)
        backends, targets = self._backends(request.annotations, hosts, observed)
        probe = self._elb.config.shared_probe
        desired = desired_nlb(request, subnets, targets, tag.cluster_id, probe)
        calls = list(nlb_plan.plan(desired, observed, self._vpc.id))
        cidrs = [subnet.cidr for subnet in subnets]
        opened = node_rules(desired, request.ranges, cidrs, request.node_health_check)
        ingress = self._node_ingress(request.name, opened)
        ingress.open(backends, tag)
        executor = self._execute(calls, observed)
        ingress.close(backends, tag)
        executor.check_room()
        return to_balancer(request.name, executor.hostname)

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> bool:
        """As `ElbType`; the rules of the nodes' groups are those for what there is."""
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag, [with_targets])
        if observed.nlb is None:
            return False
        backends, targets = self._backends(Annotations.of(service), hosts, observed)
        current = DesiredNlb(observed.nlb, observed.listeners, observed.groups)
        subnets = self._vpc.subnets()
        cidrs = [subnet.cidr for subnet in subnets if subnet.id in observed.nlb.subnets]
        opened = node_rules(current, ranges_if_valid(service), cidrs, service.health_check)
        self._node_ingress(name, opened).open(backends, tag)
        self._execute(nlb_plan.plan_targets(targets, observed), observed).check_room()
        return True

    def delete(self, service: Service) -> None:
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag, [with_listeners, with_attributes])
        calls = list(nlb_plan.plan_deletion(observed))
        ingress = NodeIngress(
            self._elb,
            lambda g: plan_node_ingress(g, frozenset(), name) if has_rules_of(g, name) else (),
        )
        ingress.close_everywhere()
        self._execute(calls, observed)

    def _refuse_unenforced(self, request: LoadBalancerRequest) -> None:
        """Ranges are enforced by the nodes' groups, to which a client has to look like itself."""
        if not self._elb.config.manages_node_ingress:
            request.refuse_ranges("DisableSecurityGroupIngress leaves the nodes' groups alone")
        attributes = request.annotations.key_values("target-group-attributes")
        if attributes.get(CLIENT_IP, "true").lower() != "true":
            request.refuse_ranges(f"target group attribute {CLIENT_IP} hides who the client is")

    def tags_by_name(self) -> Mapping[str, Tags]:
        call = "elbv2:DescribeLoadBalancers"
        records = self._api.list_pages(call, "LoadBalancers", PageSize=MAX_PER_PAGE)
        names = {
            text(one.get("LoadBalancerArn")): text(one.get("LoadBalancerName"))
            for one in records
            if one.get("Type") == "network"
        }
        with retry_on(NOT_FOUND):
            tags = describe_tags(self._api, list(names))
        return {name: tags[arn] for arn, name in names.items()}

    def _describe(
        self,
        service: Service,
        tag: ClusterTag,
        details: Iterable[Callable[[AwsApi, ObservedNlb], ObservedNlb]],
    ) -> ObservedNlb:
        """The load balancer and its groups, with these details."""
        with retry_on(NOT_FOUND):
            observed = describe_nlb(self._api, service, tag)
            for add in details:
                observed = add(self._api, observed)
        return observed

    def _backends(
        self, annotations: Annotations, hosts: Sequence[Node], observed: ObservedNlb
    ) -> tuple[Sequence[BackendInstance], frozenset[str]]:
        groups = observed.groups.values()
        registered = frozenset[str]().union(*(group.targets for group in groups))
        wanted = target_instances(annotations, hosts)
        return self._vpc.backends(wanted, registered, only_running=True)

    def _node_ingress(self, name: str, desired: frozenset[IngressRule]) -> NodeIngress:
        return NodeIngress(self._elb, lambda group: plan_node_ingress(group, desired, name))

    def _execute(self, calls: Iterable[ApiCall], observed: ObservedNlb) -> ElbExecutor:
        arns = {name: group.arn for name, group in observed.groups.items()}
        if observed.nlb:
            arns[observed.nlb.name] = observed.arn
        executor = ElbExecutor(self._api, observed.hostname, arns)
        executor.execute(calls)
        self._vpc.forget(executor.invalid_targets)
        return executor


def ranges_if_valid(service: Service) -> tuple[str, ...]:
    """Who may come in; nobody new while the Service says it in a way that is refused."""
    try:
        return tuple(str(one) for one in service.source_ranges() if one.version == 4)
    except Refused:
        return ()
