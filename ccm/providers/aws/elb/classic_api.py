"""Calls of the Classic Load Balancer API: reading one, and executing a plan for one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import AwsApi, AwsError, retry_on
from ccm.providers.aws.elb import classic_plan as plan
from ccm.providers.aws.elb.classic_desired import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicElb,
    ClassicListener,
    ObservedClassicElb,
)
from ccm.providers.aws.elb.request import ElbHealthCheck, load_balancer_name
from ccm.providers.aws.ids import INSTANCE_ID
from ccm.providers.aws.tags import ClusterTag, Tags, read_tags, tag_list

NOT_FOUND = ("LoadBalancerNotFound", "AccessPointNotFound")
ALREADY_EXISTS = ("DuplicateLoadBalancerName", "DuplicateListener", "DuplicatePolicyName")
INSTANCE_NOT_FOUND = ("InvalidInstance", "InvalidInstanceID.NotFound")
MAX_NAMES_PER_CALL = 20
_TLS_PREFIX = TLS_POLICY.format("")


def find_classic_elb(api: AwsApi, name: str) -> Json | None:
    """The record of the load balancer with this name, whoever owns it."""
    try:
        found = api.list_pages(
            "elb:DescribeLoadBalancers", "LoadBalancerDescriptions", LoadBalancerNames=[name]
        )
    except AwsError as error:
        if error.code in NOT_FOUND:
            return None
        raise
    return found[0] if found else None


def describe_classic_elb(api: AwsApi, service: Service, tag: ClusterTag) -> ObservedClassicElb:
    """What there is; one of the right name that is not ours is `Refused`."""
    name = load_balancer_name(service)
    record = find_classic_elb(api, name)
    if record is None:
        return ObservedClassicElb(None)
    tags = describe_tags(api, [name])[name]
    if not tag.owns_for(service, tags):
        raise Refused(f"load balancer {name} carries the tags of somebody else")
    answer = api.call("elb:DescribeLoadBalancerAttributes", LoadBalancerName=name)
    attributes = mapping(answer.get("LoadBalancerAttributes"))
    policies = mapping(record.get("Policies")).get("OtherPolicies") or []
    elb = _read_elb(record, tags, attributes)
    return ObservedClassicElb(elb, text(record.get("DNSName")), frozenset(policies))


def describe_tags(api: AwsApi, names: Sequence[str]) -> dict[str, Tags]:
    """The tags of load balancers, by name; many to a call."""
    found: dict[str, Tags] = {name: {} for name in names}
    for at in range(0, len(names), MAX_NAMES_PER_CALL):
        asked = list(names[at : at + MAX_NAMES_PER_CALL])
        answer = api.call("elb:DescribeTags", LoadBalancerNames=asked)
        for one in objects(answer.get("TagDescriptions")):
            found[text(one.get("LoadBalancerName"))] = read_tags(one.get("Tags"))
    return found


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

    def __init__(self, api: AwsApi, name: str, hostname: str) -> None:
        self._api, self._name, self.hostname = api, name, hostname

    def execute(self, action: plan.ClassicElbAction) -> None:
        """Make the call; `RetryAfter` when something appeared or went away meanwhile."""
        with retry_on((*ALREADY_EXISTS, *NOT_FOUND)):
            self._execute(action)

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
                self._api.call("elb:AddTags", LoadBalancerNames=names, Tags=tag_list(dict(tags)))
            case plan.ModifyAttributes(elb, sections):
                values = {name: dict(elb.attributes[name]) for name in sections}
                self._call("ModifyLoadBalancerAttributes", LoadBalancerAttributes=values)
            case plan.RegisterInstances(instances):
                self._change_instances("RegisterInstancesWithLoadBalancer", instances)
            case plan.DeregisterInstances(instances):
                self._change_instances("DeregisterInstancesFromLoadBalancer", instances)
            case _:
                self._execute_policy(action)

    def _execute_policy(self, action: plan.PolicyAction) -> None:
        match action:
            case plan.CreateTlsPolicy(reference):
                name, kind = TLS_POLICY.format(reference), "SSLNegotiationPolicyType"
                self._create_policy(name, kind, "Reference-Security-Policy", reference)
            case plan.CreateProxyPolicy():
                self._create_policy(
                    PROXY_POLICY, "ProxyProtocolPolicyType", "ProxyProtocol", "true"
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
        self.hostname = text(answer.get("DNSName"))

    def _create_policy(self, name: str, kind: str, attribute: str, value: str) -> None:
        self._call(
            "CreateLoadBalancerPolicy",
            PolicyName=name,
            PolicyTypeName=kind,
            PolicyAttributes=[{"AttributeName": attribute, "AttributeValue": value}],
        )

    def _change_instances(self, operation: str, instances: Iterable[str]) -> None:
        """One instance that does not exist must not hold up the others."""
        left = list(instances)
        while left:
            try:
                self._call(operation, Instances=[{"InstanceId": one} for one in left])
                return
            except AwsError as error:
                named = set(INSTANCE_ID.findall(str(error))) & set(left)
                if error.code not in INSTANCE_NOT_FOUND or not named:
                    raise
                left = [one for one in left if one not in named]


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
