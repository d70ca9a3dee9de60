"""Executing a plan for a Network Load Balancer, one call for each action."""

from collections.abc import Iterable
from typing import Any, assert_never

from ccm.errors import CloudError, NoRoom, RetryAfter
from ccm.model.objects import Json, objects, text
from ccm.providers.aws.client import AwsApi, AwsError, retry_on
from ccm.providers.aws.elb import nlb_plan as plan
from ccm.providers.aws.elb.nlb_describe import balancer_name
from ccm.providers.aws.elb.nlb_desired import Nlb, NlbListener, ObservedNlb, TargetGroup
from ccm.providers.aws.ids import INSTANCE_ID
from ccm.providers.aws.tags import tag_list

IN_USE_RETRY = 5.0  # seconds until AWS has let go of what was in use
NOT_FOUND = ("LoadBalancerNotFound", "ListenerNotFound", "TargetGroupNotFound")
ALREADY_EXISTS = ("DuplicateLoadBalancerName", "DuplicateTargetGroupName", "DuplicateListener")
INVALID_TARGET = "InvalidTarget"
GROUP_FULL = ("TooManyTargets", "TooManyRegistrationsForTargetId")
IN_USE = "ResourceInUse"


class NlbExecutor:
    """Acts on one load nlb; what it creates, it knows the ARN of from then on."""

    def __init__(self, api: AwsApi, vpc_id: str, observed: ObservedNlb) -> None:
        self._api, self._vpc_id = api, vpc_id
        self.arn, self.hostname = observed.arn, observed.hostname
        self._groups = dict(observed.group_arns)
        self._listeners = observed.listener_arns
        self.invalid_targets: set[str] = set()  # instances that AWS does not take
        self._full_groups: set[str] = set()  # target groups that have room for no more

    def check_room(self) -> None:
        """Raise `NoRoom` when targets had to be left out; everything else is done by then."""
        if self._full_groups:
            names = ", ".join(sorted(self._full_groups))
            raise NoRoom(
                f"not all nodes have room in {names}: raise the quota 'Targets per Target Group per"
                " Region', or choose nodes by the annotation aws-load-nlb-target-node-labels"
            )

    def execute(self, action: plan.NlbAction) -> None:
        """Make the call; `RetryAfter` when something appeared or went away meanwhile."""
        with retry_on((*ALREADY_EXISTS, *NOT_FOUND)):
            self._execute(action)

    def _execute(self, action: plan.NlbAction) -> None:
        match action:
            case plan.CreateLoadBalancer(nlb):
                self._create_nlb(nlb)
            case plan.DeleteLoadBalancer():
                self._delete("elbv2:DeleteLoadBalancer", LoadBalancerArn=self.arn)
            case plan.SetSubnets(nlb):
                self._call("elbv2:SetSubnets", SubnetMappings=_subnet_mappings(nlb))
            case plan.SetSecurityGroups(nlb):
                self._call("elbv2:SetSecurityGroups", SecurityGroups=list(nlb.groups))
            case plan.AddTags(group, tags):
                arn = self._groups[group] if group else self.arn
                self._api.call("elbv2:AddTags", ResourceArns=[arn], Tags=tag_list(dict(tags)))
            case plan.ModifyAttributes(group, attributes):
                self._set_attributes(group, attributes)
            case plan.CreateListener() | plan.ModifyListener() | plan.DeleteListener():
                self._execute_on_listener(action)
            case _:
                self._execute_on_group(action)

    def _execute_on_listener(self, action: plan.ListenerAction) -> None:
        match action:
            case plan.CreateListener(listener):
                self._call("elbv2:CreateListener", **self._listener(listener))
            case plan.ModifyListener(listener):
                parameters = self._listener(listener)
                arn = self._listeners[listener.port]
                self._api.call("elbv2:ModifyListener", ListenerArn=arn, **parameters)
            case plan.DeleteListener(port):
                self._delete("elbv2:DeleteListener", ListenerArn=self._listeners[port])
            case _:
                assert_never(action)

    def _execute_on_group(self, action: plan.TargetGroupAction) -> None:
        match action:
            case plan.CreateTargetGroup(group):
                self._create_group(group)
            case plan.ModifyTargetGroup(group):
                arn = self._groups[group.name]
                self._api.call(
                    "elbv2:ModifyTargetGroup", TargetGroupArn=arn, **_health_check(group)
                )
            case plan.DeleteTargetGroup(name):
                self._delete_group(name)
            case plan.RegisterTargets(name, targets):
                self._register(name, targets)
            case plan.DeregisterTargets(name, targets):
                self._change_targets("elbv2:DeregisterTargets", name, targets)
            case _:
                assert_never(action)

    def _call(self, name: str, **parameters: Any) -> Json:
        return self._api.call(name, LoadBalancerArn=self.arn, **parameters)

    def _create_nlb(self, nlb: Nlb) -> None:
        answer = self._api.call(
            "elbv2:CreateLoadBalancer",
            Name=nlb.name,
            Type="network",
            Scheme="internal" if nlb.is_internal else "internet-facing",
            SubnetMappings=_subnet_mappings(nlb),
            Tags=tag_list(nlb.tags),
            **({"SecurityGroups": list(nlb.groups)} if nlb.groups else {}),
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
            VpcId=self._vpc_id,
            TargetType="instance",
            Tags=tag_list(group.tags),
            **_health_check(group),
        )
        (record,) = objects(answer.get("TargetGroups"))
        self._groups[group.name] = text(record.get("TargetGroupArn"))

    def _set_attributes(self, group: str, attributes: Iterable[tuple[str, str]]) -> None:
        listed = tag_list(dict(attributes))  # attributes have the form of tags
        if group:
            self._api.call(
                "elbv2:ModifyTargetGroupAttributes",
                TargetGroupArn=self._groups[group],
                Attributes=listed,
            )
        else:
            self._call("elbv2:ModifyLoadBalancerAttributes", Attributes=listed)

    def _register(self, name: str, targets: Iterable[str]) -> None:
        """What does not run keeps no other out, and a full group stops nothing else."""
        left = [target for target in targets if target not in self.invalid_targets]
        if name in self._full_groups:
            return
        try:
            self.invalid_targets |= self._change_targets("elbv2:RegisterTargets", name, left)
        except AwsError as error:
            if error.code not in GROUP_FULL:
                raise
            self._full_groups.add(name)

    def _change_targets(self, call: str, name: str, targets: Iterable[str]) -> set[str]:
        """Make the call for all targets but those that AWS does not take, which are returned."""
        left, invalid = list(targets), set[str]()
        while left:
            try:
                ids = [{"Id": target} for target in left]
                self._api.call(call, TargetGroupArn=self._groups[name], Targets=ids)
                break
            except AwsError as error:
                named = set(INSTANCE_ID.findall(str(error))) & set(left)
                if error.code != INVALID_TARGET or not named:
                    raise
                invalid |= named
                left = [target for target in left if target not in named]
        return invalid

    def _listener(self, listener: NlbListener) -> Json:
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
            if error.code not in NOT_FOUND:
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
            raise RetryAfter(str(error), IN_USE_RETRY) from error

    def _other_users(self, arn: str) -> list[str]:
        """The names of load balancers besides this one that a target group stands behind."""
        name = "elbv2:DescribeTargetGroups"
        groups = self._api.list_pages(name, "TargetGroups", TargetGroupArns=[arn])
        users = {user for group in groups for user in group.get("LoadBalancerArns") or ()}
        return sorted(balancer_name(user) for user in users - {self.arn})


def _subnet_mappings(nlb: Nlb) -> list[dict[str, str]]:
    return [
        {"SubnetId": subnet} | ({"AllocationId": allocation} if allocation else {})
        for subnet, allocation in nlb.subnets.items()
    ]


def _health_check(group: TargetGroup) -> Json:
    check = group.health_check
    return {
        "HealthCheckProtocol": check.protocol,
        "HealthCheckPort": check.port,
        "HealthCheckIntervalSeconds": check.interval,
        "HealthCheckTimeoutSeconds": check.timeout,
        "HealthyThresholdCount": check.healthy,
        "UnhealthyThresholdCount": check.unhealthy,
        **({"HealthCheckPath": check.path} if check.path else {}),
    }
