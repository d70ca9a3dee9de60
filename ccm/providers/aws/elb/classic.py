"""Classic Load Balancers as an `ElbType`, with the security group that goes with each."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ccm.cloud.gate import warnings_as_notes
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import ELB_NOT_FOUND, MAX_LISTED, retry_on
from ccm.providers.aws.elb import classic_plan
from ccm.providers.aws.elb.annotations import CLASSIC, Annotations
from ccm.providers.aws.elb.calls import ApiCall
from ccm.providers.aws.elb.classic_desired import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicElb,
    ClassicListener,
    desired_classic_elb,
    node_rule,
    opened_for,
    plan_node_ingress,
)
from ccm.providers.aws.elb.executor import ElbExecutor
from ccm.providers.aws.elb.load_balancers import (
    ElbDependencies,
    NodeIngress,
    to_balancer,
)
from ccm.providers.aws.elb.own_groups import (
    GROUP_TO_CREATE,
    ElbSecurityGroups,
    classic_group_name,
)
from ccm.providers.aws.elb.request import (
    ElbHealthCheck,
    read_request,
    target_instances,
)
from ccm.providers.aws.security_groups import IngressChange, SecurityGroup
from ccm.providers.aws.tags import ClusterTag, Tags
from ccm.providers.aws.vpc import BackendInstance

_FIND = "elb:DescribeLoadBalancers", "LoadBalancerDescriptions"
_TLS_PREFIX = TLS_POLICY.format("")


class ClassicElbs:
    """One load balancer a Service, with a security group of its own unless others are given."""

    def __init__(self, elb: ElbDependencies) -> None:
        self._elb, self._api, self._vpc = elb, elb.api, elb.vpc
        self._groups = ElbSecurityGroups(elb)
        self._making = dict[str, str]()  # given groups of those being made or changed, by name

    def get(self, service: Service) -> Balancer | None:
        name = service.default_balancer_name
        record = self._find(name)
        if record is None:
            return None
        return self._elb.balancer(service, text(record.get("DNSName")), self._own_tags(service))

    def has_leftovers(self, service: Service) -> bool:
        """As `ElbType`: its security group can only go after the load balancer."""
        tag = self._elb.tagging.cluster_tag()
        name = classic_group_name(service.default_balancer_name)
        return self._groups.has_leftover(name, tag)

    def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        """As `ElbType`; what is refused is refused before anything is changed."""
        tag = self._elb.tagging.cluster_tag()
        request = read_request(service, CLASSIC, tag)
        observed = self._describe(service, tag, with_attributes=True)
        group_name = classic_group_name(request.name)
        own = self._groups.find(group_name, tag)
        if observed:
            request = request.keeping_scheme(observed.is_internal)
        subnets = self._elb.subnets_for(request, tag, observed.subnets if observed else ())
        backends, registered = self._backends(request.annotations, nodes, observed)
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
        with warnings_as_notes(request.annotations), self._being_made(request.name, given):
            if not given:
                own = self._groups.ensure(own, group_name, request)
            own_id = own.id if own else ""
            groups = given or [own_id]
            given_up = {*(observed.groups if observed else ())} - {*groups, *extra}
            kept = set[str]()
            ingress = self._node_ingress(request.name, tag, groups[0], own_id, given_up, kept)
            ingress.open(backends)
            executor = ElbExecutor(self._api, observed.hostname if observed else "")
            try:
                executor.execute(calls(groups))
            except CloudError:
                if given_up:  # which nothing shows any more once it is done
                    kept |= {*(self._find(request.name) or {}).get("SecurityGroups", ())}
                    ingress.close()
                raise
            ingress.close()
            ingress.close_left(registered)
            if given and own:
                self._groups.delete(own)
            executor.check()
            warnings = *request.annotations.warnings, *ingress.why_partly()
        return to_balancer(request.name, executor.hostname, warnings)

    def update_nodes(self, service: Service, nodes: Sequence[Node]) -> bool:
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag)
        if observed is None:
            return False
        backends, registered = self._backends(Annotations.of(service), nodes, observed)
        ingress = self._node_ingress(name, tag, next(iter(observed.groups), ""))
        if observed.groups:
            ingress.open(backends)
        calls = classic_plan.plan_instances(observed, registered)
        ElbExecutor(self._api, observed.hostname).execute(calls)
        ingress.close_left(registered)
        ingress.check()
        return True

    def delete(self, service: Service) -> None:
        """As `ElbType`; nodes are closed first, as only the load balancer shows for which group."""
        tag, name = self._elb.tagging.cluster_tag(), service.default_balancer_name
        observed = self._describe(service, tag)
        groups = self._elb.security_groups()
        own = self._groups.leftover(groups, classic_group_name(name), tag)
        given_up = observed.groups if observed else ()
        ingress = self._node_ingress(name, tag, "", own.id if own else "", given_up)
        ingress.close_everywhere(groups)
        ingress.check()
        if observed:
            self._api.call("elb:DeleteLoadBalancer", LoadBalancerName=name)
        if own:
            self._groups.delete(own)

    def tags_by_name(self) -> Mapping[str, Tags]:
        return self._tags([text(item.get("LoadBalancerName")) for item in self._all()])

    def _all(self) -> Sequence[Json]:
        return self._api.list_pages(*_FIND, PageSize=MAX_LISTED)

    def _find(self, name: str) -> Json | None:
        """The record of the load balancer with this name, of any owner."""
        return self._api.find_balancer(*_FIND, "LoadBalancerNames", name)

    def _describe(
        self, service: Service, tag: ClusterTag, with_attributes: bool = False
    ) -> ClassicElb | None:
        """What there is; one of the right name that is not ours is `Refused`."""
        name = service.default_balancer_name
        record = self._find(name)
        if record is None:
            return None
        tags = self._own_tags(service)
        if not tag.owns_for(service, tags):
            raise Refused(f"load balancer {name} carries the tags of another owner")
        answer = Json()
        if with_attributes:
            call = "elb:DescribeLoadBalancerAttributes"
            with retry_on(ELB_NOT_FOUND):
                read = self._api.read_if_allowed
                answer = read(answer, self._api.call, call, LoadBalancerName=name)
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
        self, annotations: Annotations, nodes: Sequence[Node], observed: ClassicElb | None
    ) -> tuple[Sequence[BackendInstance], frozenset[str]]:
        registered = observed.instances if observed else frozenset[str]()
        tag = self._elb.tagging.cluster_tag()
        return self._vpc.backends(target_instances(annotations, nodes), registered, tag)

    def _node_ingress(
        self,
        name: str,
        tag: ClusterTag,
        group_id: str,
        own_id: str = "",
        given_up: Collection[str] = (),
        kept: Collection[str] = (),
    ) -> NodeIngress:
        """The nodes opened for a group; `own_id` is closed where another group took its place.

        So are groups `given_up`, whichever load balancer the rules for them are described as of.
        Those `kept`, as they are when it is planned, are not, where nodes are to be open.
        """

        def plan(group: SecurityGroup, is_open: bool) -> Iterable[IngressChange]:
            desired = frozenset({node_rule(group_id, name)} if is_open else ())
            used = {group_id, *kept} if is_open else set[str]()
            replaced = own_id if own_id not in used else ""
            opened = opened_for(group, name) | (opened_for(group) & {*given_up})
            unused = self._unused(opened - used - {replaced}, name)
            return plan_node_ingress(group, desired, replaced, unused)

        return NodeIngress(self._elb, plan, tag)

    def _unused(self, groups: set[str], name: str) -> set[str]:
        """Those of the groups that no other load balancer has, or is to have."""
        if not groups:
            return set()
        left = groups - {*self._making.copy().values()}  # before the list, which may have them then
        others = [item for item in self._all() if item.get("LoadBalancerName") != name]
        return left - {group for item in others for group in item.get("SecurityGroups") or ()}

    @contextmanager
    def _being_made(self, name: str, given: Sequence[str]) -> Iterator[None]:
        """Inside, the nodes stay open for the first of these groups."""
        self._making[name] = next(iter(given), "")
        try:
            yield
        finally:
            del self._making[name]


# Reading a load balancer from the API.


def read_elb(record: Json, tags: Tags, attributes: Mapping[str, object]) -> ClassicElb:
    """The load balancer in the API's three records of it."""
    descriptions = objects(record.get("ListenerDescriptions"))
    listeners = [_read_listener(mapping(item.get("Listener"))) for item in descriptions]
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
            text(item.get("InstanceId")) for item in objects(record.get("Instances"))
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
