"""Calls of the Classic Load Balancer API: reading one, and executing a plan for one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import (
    ELB_NOT_FOUND,
    AwsApi,
    call_without_wrong_ids,
    retry_on,
)
from ccm.providers.aws.elb import classic_plan as plan
from ccm.providers.aws.elb.classic_desired import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicElb,
    ClassicListener,
)
from ccm.providers.aws.elb.request import ElbHealthCheck
from ccm.providers.aws.tags import ClusterTag, Tags, tag_list

ALREADY_EXISTS = ("DuplicateLoadBalancerName", "DuplicateListener", "DuplicatePolicyName")
INSTANCE_NOT_FOUND = ("InvalidInstance", "InvalidInstanceID.NotFound")
_TLS_PREFIX = TLS_POLICY.format("")


def find_classic_elb(api: AwsApi, name: str) -> Json | None:
    """The record of the load balancer with this name, whoever owns it."""
    call, member = "elb:DescribeLoadBalancers", "LoadBalancerDescriptions"
    return api.find_one(call, member, LoadBalancerNames=[name])


def describe_classic_elb(api: AwsApi, service: Service, tag: ClusterTag) -> ClassicElb | None:
    """What there is; one of the right name that is not ours is `Refused`."""
    name = service.default_balancer_name
    record = find_classic_elb(api, name)
    if record is None:
        return None
    tags = describe_tags(api, [name])[name]
    if not tag.owns_for(service, tags):
        raise Refused(f"load balancer {name} carries the tags of somebody else")
    answer = api.call("elb:DescribeLoadBalancerAttributes", LoadBalancerName=name)
    return _read_elb(record, tags, mapping(answer.get("LoadBalancerAttributes")))


def describe_tags(api: AwsApi, names: Sequence[str]) -> dict[str, Tags]:
    """The tags of load balancers, by name."""
    return api.describe_tags("elb:DescribeTags", "LoadBalancerName", names)


def _read_elb(record: Json, tags: Tags, attributes: Mapping[str, object]) -> ClassicElb:
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


class ClassicElbExecutor:
    """Acts on the load balancer of one name."""

    def __init__(self, api: AwsApi, name: str, observed: ClassicElb | None) -> None:
        self._api, self._name = api, name
        self._hostname = observed.hostname if observed else ""

    def execute(self, actions: Iterable[plan.ClassicElbAction]) -> str:
        """Make the calls; the load balancer's host name.

        Raises `RetryAfter` when something appeared or went away meanwhile.
        """
        for action in actions:
            with retry_on((*ALREADY_EXISTS, *ELB_NOT_FOUND)):
                self._execute(action)
        return self._hostname

    def _execute(self, action: plan.ClassicElbAction) -> None:
        match action:
            case plan.CreateLoadBalancer(elb):
                self._create(elb)
            case plan.AttachSubnets(subnets):
                self._call("AttachLoadBalancerToSubnets", Subnets=list(subnets))
            case plan.DetachSubnets(subnets):
                self._call("DetachLoadBalancerFromSubnets", Subnets=list(subnets))
            case plan.ApplySecurityGroups(groups):
                self._call("ApplySecurityGroupsToLoadBalancer", SecurityGroups=list(groups))
            case plan.DeleteListener(port):
                self._call("DeleteLoadBalancerListeners", LoadBalancerPorts=[port])
            case plan.CreateListeners(listeners):
                listed = [_listener_parameters(one) for one in listeners]
                self._call("CreateLoadBalancerListeners", Listeners=listed)
            case plan.ConfigureHealthCheck(check):
                self._call("ConfigureHealthCheck", HealthCheck=_health_check_parameters(check))
            case plan.AddTags(tags):
                names = [self._name]
                self._api.call("elb:AddTags", LoadBalancerNames=names, Tags=tag_list(tags))
            case plan.ModifyAttributes(sections):
                self._call("ModifyLoadBalancerAttributes", LoadBalancerAttributes=sections)
            case plan.RegisterInstances(instances):
                self._change_instances("RegisterInstancesWithLoadBalancer", instances)
            case plan.DeregisterInstances(instances):
                self._change_instances("DeregisterInstancesFromLoadBalancer", instances)
            case _:
                self._execute_policy(action)

    def _execute_policy(self, action: plan.PolicyAction) -> None:
        match action:
            case plan.CreatePolicy(name, kind, attribute, value):
                self._call(
                    "CreateLoadBalancerPolicy",
                    PolicyName=name,
                    PolicyTypeName=kind,
                    PolicyAttributes=[{"AttributeName": attribute, "AttributeValue": value}],
                )
            case plan.SetTlsPolicy(port, reference):
                self._call(
                    "SetLoadBalancerPoliciesOfListener",
                    LoadBalancerPort=port,
                    PolicyNames=[TLS_POLICY.format(reference)],
                )
            case plan.SetProxyProtocol(node_port, is_on):
                self._call(
                    "SetLoadBalancerPoliciesForBackendServer",
                    InstancePort=node_port,
                    PolicyNames=[PROXY_POLICY] if is_on else [],
                )
            case _:
                assert_never(action)

    def _call(self, operation: str, **parameters: Any) -> Json:
        return self._api.call(f"elb:{operation}", LoadBalancerName=self._name, **parameters)

    def _create(self, elb: ClassicElb) -> None:
        answer = self._call(
            "CreateLoadBalancer",
            Listeners=[_listener_parameters(one) for one in elb.listeners.values()],
            Subnets=sorted(elb.subnets),
            SecurityGroups=list(elb.groups),
            Tags=tag_list(elb.tags),
            **({"Scheme": "internal"} if elb.is_internal else {}),
        )
        self._hostname = text(answer.get("DNSName"))

    def _change_instances(self, operation: str, instances: Iterable[str]) -> None:
        """One instance that does not exist must not hold up the others."""
        call_without_wrong_ids(
            INSTANCE_NOT_FOUND,
            instances,
            lambda left: self._call(operation, Instances=[{"InstanceId": one} for one in left]),
        )


def _listener_parameters(listener: ClassicListener) -> Json:
    return {
        "Protocol": listener.protocol,
        "LoadBalancerPort": listener.port,
        "InstanceProtocol": listener.node_protocol,
        "InstancePort": listener.node_port,
        **({"SSLCertificateId": listener.certificate} if listener.certificate else {}),
    }


def _health_check_parameters(check: ElbHealthCheck) -> Json:
    return {
        "Target": f"{check.protocol}:{check.port}{check.path}",
        "Interval": check.interval,
        "Timeout": check.timeout,
        "HealthyThreshold": check.healthy,
        "UnhealthyThreshold": check.unhealthy,
    }
