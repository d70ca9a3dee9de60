"""Classic Load Balancers as an `ElbType`, with the security group that goes with each."""

import time
from collections.abc import Iterable, Mapping, Sequence

from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import ELB_NOT_FOUND, AwsError, retry_on
from ccm.providers.aws.elb import classic_plan
from ccm.providers.aws.elb.annotations import CLASSIC, Annotations
from ccm.providers.aws.elb.calls import ApiCall
from ccm.providers.aws.elb.classic_desired import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicElb,
    ClassicListener,
    desired_classic_elb,
    elb_ingress_rules,
    node_rule,
    opened_for,
    plan_node_ingress,
    security_group_name,
)
from ccm.providers.aws.elb.executor import ElbExecutor
from ccm.providers.aws.elb.load_balancers import (
    ElbDependencies,
    NodeIngress,
    change_ingress,
    to_balancer,
)
from ccm.providers.aws.elb.request import (
    ElbHealthCheck,
    LoadBalancerRequest,
    read_request,
    target_instances,
)
from ccm.providers.aws.security_groups import IngressChange, SecurityGroup, plan_ingress
from ccm.providers.aws.tags import ClusterTag, Tags, is_unmarked, tag_list
from ccm.providers.aws.vpc import BackendInstance

_TLS_PREFIX = TLS_POLICY.format("")
GROUP_TO_CREATE = "sg-"
"""Stands for the ID of a security group that is not created yet."""
GROUP_IN_USE = ("DependencyViolation", "InvalidGroup.InUse")
GROUP_IN_USE_RETRY = 5.0  # seconds until AWS has let go of a group that was in use


class ClassicElbs:
    """One load balancer a Service, with a security group of its own unless others are given."""

    def __init__(self, elb: ElbDependencies) -> None:
        self._elb, self._api, self._vpc = elb, elb.api, elb.vpc
        self._groups = ElbSecurityGroups(elb)

    def get(self, service: Service) -> Balancer | None:
        name = service.default_balancer_name
        record = self._find(name)
        if record is None:
            return None
        return self._elb.balancer(service, text(record.get("DNSName")), self._own_tags(service))

    def has_leftovers(self, service: Service) -> bool:
        """As `ElbType`: its security group can only go after the load balancer."""
        tag = self._elb.tagging.cluster_tag()
        return self._groups.find(service.default_balancer_name, tag) is not None

    def ensure(self, service: Service, hosts: Sequence[Node]) -> Balancer:
        """As `ElbType`; what is refused is refused before anything is changed."""
        tag = self._elb.tagging.cluster_tag()
        request = read_request(service, CLASSIC, tag)
        observed, own = self._describe(service, tag), self._groups.find(request.name, tag)
        if observed:
            request = request.keeping_scheme(observed.is_internal)
        subnets = self._elb.subnets_for(request, tag, observed.subnets if observed else ())
        backends, registered = self._backends(request.annotations, hosts, observed)
        extra = request.annotations.csv("extra-security-groups")
        shared = self._elb.config.elb_security_group
        given = request.annotations.csv("security-groups") or ([shared] if shared else [])
        if given:
            request.refuse_ranges(f"the rules of {', '.join(given)} are not ours to change")
        probe = self._elb.config.shared_probe

        def calls(first: Sequence[str]) -> list[ApiCall]:
            groups = [*first, *extra]
            desired = desired_classic_elb(request, subnets, groups, registered, probe)
            return list(classic_plan.plan(desired, observed))

        calls(given or [own.id if own else GROUP_TO_CREATE])
        with request.annotations.noted():
            if not given:
                own = self._groups.ensure(own, request)
            own_id = own.id if own else ""
            groups = given or [own_id]
            ingress = self._node_ingress(request.name, groups[0], own_id)
            ingress.open(backends, tag)
            executor = ElbExecutor(self._api, observed.hostname if observed else "")
            executor.execute(calls(groups))
            ingress.close(backends, tag)
            if given and own:
                self._groups.delete(own)
            executor.check()
            ingress.check()
        return to_balancer(request.name, executor.hostname, request.annotations.warnings)

    def update_hosts(self, service: Service, hosts: Sequence[Node]) -> bool:
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag)
        if observed is None:
            return False
        backends, registered = self._backends(Annotations.of(service), hosts, observed)
        ingress = self._node_ingress(name, next(iter(observed.groups), ""))
        if observed.groups:
            ingress.open(backends, tag)
        calls = classic_plan.plan_instances(observed, registered)
        ElbExecutor(self._api, observed.hostname).execute(calls)
        ingress.check()
        return True

    def delete(self, service: Service) -> None:
        """As `ElbType`; nodes are closed first, as only the load balancer tells for which group."""
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag)
        own = self._api.read_if_allowed(None, self._groups.find, name, tag)
        own_id = own.id if own else ""
        used = {*(observed.groups if observed else ()), *([own_id] if own_id else [])}

        def plan(group: SecurityGroup) -> Iterable[IngressChange]:
            sources = used | opened_for(group, name)
            if not any(rule.source in sources for rule in group.rules):
                return ()
            return plan_node_ingress(group, frozenset(), own_id, self._unused(sources, name))

        ingress = NodeIngress(self._elb, plan)
        ingress.close_everywhere(tag)
        ingress.check()
        if observed:
            self._api.call("elb:DeleteLoadBalancer", LoadBalancerName=name)
        if own:
            self._groups.delete(own)

    def tags_by_name(self) -> Mapping[str, Tags]:
        return self._tags([text(one.get("LoadBalancerName")) for one in self._all()])

    def _all(self) -> Sequence[Json]:
        return self._api.list_pages("elb:DescribeLoadBalancers", "LoadBalancerDescriptions")

    def _find(self, name: str) -> Json | None:
        """The record of the load balancer with this name, whoever owns it."""
        call, member = "elb:DescribeLoadBalancers", "LoadBalancerDescriptions"
        return self._api.find_one(call, member, LoadBalancerNames=[name])

    def _describe(self, service: Service, tag: ClusterTag) -> ClassicElb | None:
        """What there is; one of the right name that is not ours is `Refused`."""
        name = service.default_balancer_name
        record = self._find(name)
        if record is None:
            return None
        tags = self._own_tags(service)
        if not tag.owns_for(service, tags):
            raise Refused(f"load balancer {name} carries the tags of somebody else")
        call = "elb:DescribeLoadBalancerAttributes"
        with retry_on(ELB_NOT_FOUND):
            answer = self._api.read_if_allowed(Json(), self._api.call, call, LoadBalancerName=name)
        return read_elb(record, tags, mapping(answer.get("LoadBalancerAttributes")))

    def _own_tags(self, service: Service) -> Tags:
        with retry_on(ELB_NOT_FOUND):
            name = service.default_balancer_name
            return self._elb.tags_of(service, "elb:DescribeTags", "LoadBalancerName", name)

    def _tags(self, names: Sequence[str]) -> Mapping[str, Tags]:
        """The tags of load balancers, by name."""
        with retry_on(ELB_NOT_FOUND):
            return self._api.describe_tags("elb:DescribeTags", "LoadBalancerName", names)

    def _backends(
        self, annotations: Annotations, hosts: Sequence[Node], observed: ClassicElb | None
    ) -> tuple[Sequence[BackendInstance], frozenset[str]]:
        registered = observed.instances if observed else frozenset[str]()
        tag = self._elb.tagging.cluster_tag()
        return self._vpc.backends(target_instances(annotations, hosts), registered, tag)

    def _node_ingress(self, name: str, group_id: str, own_id: str = "") -> NodeIngress:
        """The nodes opened for a group; `own_id` is closed where another group took its place."""
        desired = frozenset({node_rule(group_id, name)})
        replaced = own_id if own_id != group_id else ""

        def plan(group: SecurityGroup) -> Iterable[IngressChange]:
            unused = self._unused(opened_for(group, name) - {group_id}, name)
            return plan_node_ingress(group, desired, replaced, unused)

        return NodeIngress(self._elb, plan)

    def _unused(self, groups: set[str], name: str) -> set[str]:
        """Those of the groups that no other load balancer has."""
        if not groups:
            return set()
        others = [one for one in self._all() if one.get("LoadBalancerName") != name]
        return groups - {group for one in others for group in one.get("SecurityGroups") or ()}


class ElbSecurityGroups:
    """The groups of load balancers, found by name, so that a leftover is found, too."""

    def __init__(self, elb: ElbDependencies) -> None:
        self._api, self._vpc = elb.api, elb.vpc
        self._in_use_timeout = elb.timings.group_in_use_timeout
        self._in_use_since: dict[str, float] = {}  # groups that could not be deleted, by ID

    def find(self, name: str, tag: ClusterTag) -> SecurityGroup | None:
        """The group of this load balancer; `Refused` when another owner took its name."""
        for group in self._vpc.security_groups(security_group_name(name)):
            if not (tag.owns(group.tags) or is_unmarked(group.tags)):
                raise Refused(f"security group {group.name} carries the tags of somebody else")
            return group
        return None

    def ensure(self, group: SecurityGroup | None, request: LoadBalancerRequest) -> SecurityGroup:
        """The group with the rules that the request needs."""
        found = group or self._create(request)
        for change in plan_ingress(found, elb_ingress_rules(request), found.rules):
            change_ingress(self._api, change)
        return found

    def delete(self, group: SecurityGroup) -> None:
        """Delete the group; `RetryAfter` while its load balancer still holds it."""
        try:
            self._api.call("ec2:DeleteSecurityGroup", GroupId=group.id)
        except AwsError as error:
            if error.code in GROUP_IN_USE:
                raise self._in_use(group) from error
            if error.code != "InvalidGroup.NotFound":
                raise
        self._in_use_since.pop(group.id, None)

    def _in_use(self, group: SecurityGroup) -> CloudError:
        """The error for a group in use: by AWS itself for a few minutes, or by somebody else."""
        since = self._in_use_since.setdefault(group.id, time.monotonic())
        groups = self._vpc.security_groups()
        users = {g.id for g in groups if any(rule.source == group.id for rule in g.rules)}
        if others := sorted(users - {group.id}):
            named = f"is named in rules of {', '.join(others)}: take it out there"
            return CloudError(f"security group {group.name} {named}")
        if time.monotonic() - since > self._in_use_timeout:
            return CloudError(
                f"security group {group.name} is in use by something that is not ours"
            )
        return RetryAfter(f"security group {group.name} is still in use", GROUP_IN_USE_RETRY)

    def _create(self, request: LoadBalancerRequest) -> SecurityGroup:
        name = security_group_name(request.name)
        tags = {"ResourceType": "security-group", "Tags": tag_list(request.tags)}
        with retry_on(["InvalidGroup.Duplicate"]):
            answer = self._api.call(
                "ec2:CreateSecurityGroup",
                GroupName=name,
                Description=f"Security group for Kubernetes ELB {request.name} ({request.key})",
                VpcId=self._vpc.id,
                TagSpecifications=[tags],
            )
        group_id = text(answer.get("GroupId"))
        if not group_id:
            raise CloudError(f"AWS did not say what the ID of security group {name} is")
        return SecurityGroup(group_id, name, request.tags, frozenset())


# Reading a load balancer from the API.


def read_elb(record: Json, tags: Tags, attributes: Mapping[str, object]) -> ClassicElb:
    """The load balancer in the API's three records of it."""
    descriptions = objects(record.get("ListenerDescriptions"))
    listeners = [_read_listener(mapping(one.get("Listener"))) for one in descriptions]
    servers = objects(record.get("BackendServerDescriptions"))
    return ClassicElb(
        name=text(record.get("LoadBalancerName")),
        is_internal=record.get("Scheme") == "internal",
        subnets=frozenset(record.get("Subnets") or ()),
        groups=tuple(record.get("SecurityGroups") or ()),
        listeners={listener.port: listener for listener in listeners},
        health_check=_read_health_check(mapping(record.get("HealthCheck"))),
        tags=tags,
        attributes={name: mapping(values) for name, values in attributes.items()},
        instances=frozenset(
            text(one.get("InstanceId")) for one in objects(record.get("Instances"))
        ),
        tls_policies={
            listener.port: name.removeprefix(_TLS_PREFIX)
            for listener, description in zip(listeners, descriptions, strict=True)
            for name in description.get("PolicyNames") or ()
            if name.startswith(_TLS_PREFIX)
        },
        proxied=frozenset(
            int(server.get("InstancePort", 0))
            for server in servers
            if PROXY_POLICY in (server.get("PolicyNames") or ())
        ),
        policies=frozenset(mapping(record.get("Policies")).get("OtherPolicies") or ()),
        hostname=text(record.get("DNSName")),
    )


def _read_listener(fields: Mapping[str, object]) -> ClassicListener:
    protocol = text(fields.get("Protocol")).upper()
    return ClassicListener(
        port=int(str(fields.get("LoadBalancerPort", 0))),
        protocol=protocol,
        node_port=int(str(fields.get("InstancePort", 0))),
        node_protocol=text(fields.get("InstanceProtocol")).upper() or protocol,
        certificate=text(fields.get("SSLCertificateId")),
    )


def _read_health_check(fields: Mapping[str, object]) -> ElbHealthCheck:
    """The health check in AWS's form `HTTP:32000/healthz`."""
    protocol, _, rest = text(fields.get("Target")).partition(":")
    port, slash, path = rest.partition("/")
    numbers = ("Interval", "Timeout", "HealthyThreshold", "UnhealthyThreshold")
    return ElbHealthCheck(
        protocol.upper(), port, slash + path, *(int(str(fields.get(n, 0))) for n in numbers)
    )
