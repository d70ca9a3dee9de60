"""Making the calls of a plan for a network load balancer, one action at a time."""

from collections.abc import Iterable
from typing import Any, assert_never

from ccm.errors import CloudError, NoRoom, RetryAfter
from ccm.model.objects import Json, objects, text
from ccm.providers.aws.balancers.network.plan import (
    Action,
    CreateBalancer,
    CreateGroup,
    CreateListener,
    DeleteBalancer,
    DeleteGroup,
    DeleteListener,
    Deregister,
    Register,
    SetAttributes,
    SetCheck,
    SetGroups,
    SetListener,
    SetSubnets,
    SetTags,
)
from ccm.providers.aws.balancers.network.read import balancer_name
from ccm.providers.aws.balancers.network.state import Listener, NetworkBalancer, Seen, TargetGroup
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.ids import INSTANCE_ID
from ccm.providers.aws.tags import tag_list

SOON = 5.0  # seconds until AWS has let go of what was in use
GONE = ("LoadBalancerNotFound", "ListenerNotFound", "TargetGroupNotFound")
APPEARED = ("DuplicateLoadBalancerName", "DuplicateTargetGroupName", "DuplicateListener")
NOT_RUNNING = "InvalidTarget"
FULL = ("TooManyTargets", "TooManyRegistrationsForTargetId")
IN_USE = "ResourceInUse"


class Performer:
    """Acts on one balancer; what it makes, it knows the ARN of from then on."""

    def __init__(self, api: AwsApi, vpc: str, seen: Seen) -> None:
        self._api, self._vpc = api, vpc
        self.arn, self.hostname = seen.arn, seen.hostname
        self._groups = dict(seen.group_arns)
        self._listeners = seen.listener_arns
        self.missing: set[str] = set()  # instances that AWS does not take as targets
        self._full: set[str] = set()  # target groups that have room for no more

    def check_room(self) -> None:
        """Raise `NoRoom` when targets had to be left out; everything else is done by then."""
        if self._full:
            names = ", ".join(sorted(self._full))
            raise NoRoom(
                f"not all nodes have room in {names}: raise the quota 'Targets per Target Group per"
                " Region', or choose nodes by the annotation aws-load-balancer-target-node-labels"
            )

    def perform(self, action: Action) -> None:
        """Make the call; `RetryAfter` when something appeared or went away meanwhile."""
        try:
            self._act(action)
        except AwsError as error:
            if error.code in APPEARED or error.code in GONE:
                raise RetryAfter(f"{error}: looked at again", 1.0) from error
            raise

    def _act(self, action: Action) -> None:
        match action:
            case CreateBalancer(balancer):
                self._create_balancer(balancer)
            case DeleteBalancer():
                self._delete("elbv2:DeleteLoadBalancer", LoadBalancerArn=self.arn)
            case SetSubnets(balancer):
                self._call("elbv2:SetSubnets", SubnetMappings=_subnet_mappings(balancer))
            case SetGroups(balancer):
                self._call("elbv2:SetSecurityGroups", SecurityGroups=list(balancer.groups))
            case SetTags(group, tags):
                arn = self._groups[group] if group else self.arn
                self._api.call("elbv2:AddTags", ResourceArns=[arn], Tags=tag_list(dict(tags)))
            case SetAttributes(group, attributes):
                self._set_attributes(group, attributes)
            case CreateListener() | SetListener() | DeleteListener():
                self._act_on_listener(action)
            case _:
                self._act_on_group(action)

    def _act_on_listener(self, action: CreateListener | SetListener | DeleteListener) -> None:
        match action:
            case CreateListener(listener):
                self._call("elbv2:CreateListener", **self._listener(listener))
            case SetListener(listener):
                parameters = self._listener(listener)
                arn = self._listeners[listener.port]
                self._api.call("elbv2:ModifyListener", ListenerArn=arn, **parameters)
            case DeleteListener(port):
                self._delete("elbv2:DeleteListener", ListenerArn=self._listeners[port])
            case _:
                assert_never(action)

    def _act_on_group(
        self, action: CreateGroup | SetCheck | DeleteGroup | Register | Deregister
    ) -> None:
        match action:
            case CreateGroup(group):
                self._create_group(group)
            case SetCheck(group):
                arn = self._groups[group.name]
                self._api.call("elbv2:ModifyTargetGroup", TargetGroupArn=arn, **_check(group))
            case DeleteGroup(name):
                self._delete_group(name)
            case Register(name, targets):
                self._register(name, targets)
            case Deregister(name, targets):
                self._change_targets("elbv2:DeregisterTargets", name, targets)
            case _:
                assert_never(action)

    def _call(self, name: str, **parameters: Any) -> Json:
        return self._api.call(name, LoadBalancerArn=self.arn, **parameters)

    def _create_balancer(self, balancer: NetworkBalancer) -> None:
        answer = self._api.call(
            "elbv2:CreateLoadBalancer",
            Name=balancer.name,
            Type="network",
            Scheme="internal" if balancer.is_internal else "internet-facing",
            SubnetMappings=_subnet_mappings(balancer),
            Tags=tag_list(balancer.tags),
            **({"SecurityGroups": list(balancer.groups)} if balancer.groups else {}),
        )
        (record,) = objects(answer.get("LoadBalancers"))
        self.arn = text(record.get("LoadBalancerArn"))
        self.hostname = text(record.get("DNSName"))

    def _create_group(self, group: TargetGroup) -> None:
        answer = self._api.call(
            "elbv2:CreateTargetGroup",
            Name=group.name,
            Protocol=group.protocol,
            Port=group.port,
            VpcId=self._vpc,
            TargetType="instance",
            Tags=tag_list(group.tags),
            **_check(group),
        )
        (record,) = objects(answer.get("TargetGroups"))
        self._groups[group.name] = text(record.get("TargetGroupArn"))

    def _set_attributes(self, group: str, attributes: Iterable[tuple[str, str]]) -> None:
        listed = tag_list(dict(attributes))  # the same form
        if group:
            self._api.call(
                "elbv2:ModifyTargetGroupAttributes",
                TargetGroupArn=self._groups[group],
                Attributes=listed,
            )
        else:
            self._call("elbv2:ModifyLoadBalancerAttributes", Attributes=listed)

    def _register(self, name: str, targets: Iterable[str]) -> None:
        """Register; what does not run keeps no other out, and what is full stops nothing else."""
        left = [target for target in targets if target not in self.missing]
        if name in self._full:
            return
        try:
            self.missing |= self._change_targets("elbv2:RegisterTargets", name, left)
        except AwsError as error:
            if error.code not in FULL:
                raise
            self._full.add(name)

    def _change_targets(self, call: str, name: str, targets: Iterable[str]) -> set[str]:
        """Make the call for all targets but those that AWS does not take, which are returned."""
        left, odd = list(targets), set[str]()
        while left:
            try:
                ids = [{"Id": target} for target in left]
                self._api.call(call, TargetGroupArn=self._groups[name], Targets=ids)
                break
            except AwsError as error:
                named = set(INSTANCE_ID.findall(str(error))) & set(left)
                if error.code != NOT_RUNNING or not named:
                    raise
                odd |= named
                left = [target for target in left if target not in named]
        return odd

    def _listener(self, listener: Listener) -> Json:
        parameters: Json = {
            "Port": listener.port,
            "Protocol": listener.protocol,
            "DefaultActions": [{"Type": "forward", "TargetGroupArn": self._groups[listener.group]}],
        }
        if listener.certificate:
            parameters["Certificates"] = [{"CertificateArn": listener.certificate}]
        if listener.policy:
            parameters["SslPolicy"] = listener.policy
        if listener.alpn:
            parameters["AlpnPolicy"] = [listener.alpn]
        return parameters

    def _delete(self, name: str, **which: str) -> None:
        try:
            self._api.call(name, **which)
        except AwsError as error:
            if error.code not in GONE:
                raise

    def _delete_group(self, name: str) -> None:
        arn = self._groups[name]
        try:
            self._delete("elbv2:DeleteTargetGroup", TargetGroupArn=arn)
        except AwsError as error:
            if error.code != IN_USE:
                raise
            if others := self._other_users(arn):
                used = f"target group {name} is used by {', '.join(others)}: take it out there"
                raise CloudError(used) from error
            raise RetryAfter(str(error), SOON) from error

    def _other_users(self, arn: str) -> list[str]:
        """The names of balancers besides this one that a target group stands behind."""
        name = "elbv2:DescribeTargetGroups"
        groups = self._api.pages(name, "TargetGroups", TargetGroupArns=[arn])
        users = {user for group in groups for user in group.get("LoadBalancerArns") or ()}
        return sorted(balancer_name(user) for user in users - {self.arn})


def _subnet_mappings(balancer: NetworkBalancer) -> list[dict[str, str]]:
    return [
        {"SubnetId": subnet} | ({"AllocationId": allocation} if allocation else {})
        for subnet, allocation in balancer.subnets.items()
    ]


def _check(group: TargetGroup) -> Json:
    check = group.check
    return {
        "HealthCheckProtocol": check.protocol,
        "HealthCheckPort": check.port,
        "HealthCheckIntervalSeconds": check.interval,
        "HealthCheckTimeoutSeconds": check.timeout,
        "HealthyThresholdCount": check.healthy,
        "UnhealthyThresholdCount": check.unhealthy,
        **({"HealthCheckPath": check.path} if check.path else {}),
    }
