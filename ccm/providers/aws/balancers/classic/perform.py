"""Making the calls of a plan for a classic load balancer, one action at a time."""

from collections.abc import Iterable
from typing import Any, assert_never

from ccm.errors import RetryAfter
from ccm.model.objects import Json, text
from ccm.providers.aws.balancers.classic.plan import (
    Action,
    AttachSubnets,
    Create,
    CreateListeners,
    CreateProxyPolicy,
    CreateTlsPolicy,
    DeleteListener,
    Deregister,
    DetachSubnets,
    PolicyAction,
    Register,
    SetAttributes,
    SetCheck,
    SetGroups,
    SetProxied,
    SetTags,
    SetTlsPolicy,
)
from ccm.providers.aws.balancers.classic.read import ABSENT
from ccm.providers.aws.balancers.classic.state import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicBalancer,
    Listener,
)
from ccm.providers.aws.balancers.request import Check
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.ids import INSTANCE_ID
from ccm.providers.aws.tags import tag_list

APPEARED = ("DuplicateLoadBalancerName", "DuplicateListener", "DuplicatePolicyName")
NO_INSTANCE = ("InvalidInstance", "InvalidInstanceID.NotFound")
INSTANCES_OF = {Register: "RegisterInstancesWith", Deregister: "DeregisterInstancesFrom"}


class Performer:
    """Acts on the balancer of one name."""

    def __init__(self, api: AwsApi, name: str, hostname: str) -> None:
        self._api, self._name, self.hostname = api, name, hostname

    def perform(self, action: Action) -> None:
        """Make the call; `RetryAfter` when something appeared or went away meanwhile."""
        try:
            self._act(action)
        except AwsError as error:
            if error.code in APPEARED or error.code in ABSENT:
                raise RetryAfter(f"{error}: looked at again", 1.0) from error
            raise

    def _act(self, action: Action) -> None:
        match action:
            case Create(balancer):
                self._create(balancer)
            case AttachSubnets(subnets):
                self._call("AttachLoadBalancerToSubnets", Subnets=list(subnets))
            case DetachSubnets(subnets):
                self._call("DetachLoadBalancerFromSubnets", Subnets=list(subnets))
            case SetGroups(groups):
                self._call("ApplySecurityGroupsToLoadBalancer", SecurityGroups=list(groups))
            case DeleteListener(port):
                self._call("DeleteLoadBalancerListeners", LoadBalancerPorts=[port])
            case CreateListeners(listeners):
                listed = [_listener(one) for one in listeners]
                self._call("CreateLoadBalancerListeners", Listeners=listed)
            case SetCheck(check):
                self._call("ConfigureHealthCheck", HealthCheck=_check(check))
            case SetTags(tags):
                names = [self._name]
                self._api.call("elb:AddTags", LoadBalancerNames=names, Tags=tag_list(dict(tags)))
            case SetAttributes(balancer, sections):
                values = {name: dict(balancer.attributes[name]) for name in sections}
                self._call("ModifyLoadBalancerAttributes", LoadBalancerAttributes=values)
            case Register(instances) | Deregister(instances):
                self._change_instances(f"{INSTANCES_OF[type(action)]}LoadBalancer", instances)
            case _:
                self._act_on_policy(action)

    def _act_on_policy(self, action: PolicyAction) -> None:
        match action:
            case CreateTlsPolicy(reference):
                name, kind = TLS_POLICY.format(reference), "SSLNegotiationPolicyType"
                self._create_policy(name, kind, "Reference-Security-Policy", reference)
            case CreateProxyPolicy():
                self._create_policy(
                    PROXY_POLICY, "ProxyProtocolPolicyType", "ProxyProtocol", "true"
                )
            case SetTlsPolicy(port, reference):
                self._call(
                    "SetLoadBalancerPoliciesOfListener",
                    LoadBalancerPort=port,
                    PolicyNames=[TLS_POLICY.format(reference)],
                )
            case SetProxied(node_port, is_on):
                self._call(
                    "SetLoadBalancerPoliciesForBackendServer",
                    InstancePort=node_port,
                    PolicyNames=[PROXY_POLICY] if is_on else [],
                )
            case _:
                assert_never(action)

    def _call(self, operation: str, **parameters: Any) -> Json:
        return self._api.call(f"elb:{operation}", LoadBalancerName=self._name, **parameters)

    def _create(self, balancer: ClassicBalancer) -> None:
        answer = self._call(
            "CreateLoadBalancer",
            Listeners=[_listener(one) for one in balancer.listeners.values()],
            Subnets=sorted(balancer.subnets),
            SecurityGroups=list(balancer.groups),
            Tags=tag_list(balancer.tags),
            **({"Scheme": "internal"} if balancer.is_internal else {}),
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
                if error.code not in NO_INSTANCE or not named:
                    raise
                left = [one for one in left if one not in named]


def _listener(listener: Listener) -> Json:
    return {
        "Protocol": listener.protocol,
        "LoadBalancerPort": listener.port,
        "InstanceProtocol": listener.node_protocol,
        "InstancePort": listener.node_port,
        **({"SSLCertificateId": listener.certificate} if listener.certificate else {}),
    }


def _check(check: Check) -> Json:
    return {
        "Target": f"{check.protocol}:{check.port}{check.path}",
        "Interval": check.interval,
        "Timeout": check.timeout,
        "HealthyThreshold": check.healthy,
        "UnhealthyThreshold": check.unhealthy,
    }
