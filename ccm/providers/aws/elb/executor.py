"""Makes the calls of a plan for a load balancer of any type, and copes with what AWS refuses."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ccm.errors import CloudError, Denied, NoRoom, RetryAfter
from ccm.model.objects import Json, objects, text
from ccm.providers.aws.client import (
    ELB_NOT_FOUND,
    AwsApi,
    AwsError,
    AwsRefused,
    call_without_wrong_ids,
    retry_on,
)
from ccm.providers.aws.elb.calls import ApiCall, Arn

IN_USE_RETRY = 5.0  # seconds until AWS has let go of what was in use
NOT_FOUND = (*ELB_NOT_FOUND, "ListenerNotFound", "TargetGroupNotFound")
ALREADY_EXISTS = (
    "DuplicateLoadBalancerName",
    "DuplicateTargetGroupName",
    "DuplicateListener",
    "DuplicatePolicyName",
)
INVALID_INSTANCE = ("InvalidTarget", "InvalidInstance", "InvalidInstanceID.NotFound")
GROUP_FULL = ("TooManyTargets", "TooManyRegistrationsForTargetId")
IN_USE = "ResourceInUse"
ADJUSTMENTS = (
    "AddTags",
    "ModifyLoadBalancerAttributes",
    "ModifyTargetGroupAttributes",
    "SetIpAddressType",
    "SetLoadBalancerListenerSSLCertificate",
    "SetSubnets",
)
"""Calls without which a load balancer still serves: upstream's credentials may not do all."""


class ElbExecutor:
    """Acts on one load balancer; what it creates, it knows the ARN of from then on."""

    def __init__(self, api: AwsApi, hostname: str, arns: Mapping[str, str] = {}) -> None:
        self._api, self.hostname, self._arns = api, hostname, dict(arns)
        self.invalid_targets: set[str] = set()  # instances that AWS does not take
        self._full_groups: set[str] = set()  # target groups that have room for no more
        self._denied: Denied | None = None

    def check(self) -> None:
        """Raise `Denied` or `NoRoom` when something was left out; all else is done by then."""
        if self._denied:
            raise self._denied
        if self._full_groups:
            names = ", ".join(sorted(self._full_groups))
            raise NoRoom(
                f"not all nodes have room in {names}: raise the quota 'Targets per Target Group per"
                " Region', or choose nodes by the annotation aws-load-balancer-target-node-labels"
            )

    def execute(self, calls: Iterable[ApiCall]) -> None:
        """Make the calls; `RetryAfter` when something appeared or went away meanwhile.

        What is refused after a denial is reported as the denial, which may have caused it.
        """
        for call in calls:
            try:
                with retry_on((*ALREADY_EXISTS, *NOT_FOUND)), self._undoing(call):
                    self._make(call)
            except Denied as error:
                if call.name.partition(":")[2] not in ADJUSTMENTS:
                    raise
                self._denied = self._denied or error
            except AwsRefused as error:
                if self._denied:
                    raise self._denied from error
                raise

    @contextmanager
    def _undoing(self, call: ApiCall) -> Iterator[None]:
        try:
            yield
        except CloudError:
            if call.undo:
                with suppress(CloudError):
                    self._make(call.undo)
            raise

    def _make(self, call: ApiCall) -> None:
        match call.name:
            case "elbv2:RegisterTargets":
                self._register(call)
            case (
                "elbv2:DeregisterTargets"
                | "elb:RegisterInstancesWithLoadBalancer"
                | "elb:DeregisterInstancesFromLoadBalancer"
            ):
                self._change_targets(call)
            case "elbv2:DeleteLoadBalancer" | "elbv2:DeleteListener" | "elbv2:DeleteTargetGroup":
                self._delete(call)
            case _:
                self._learn(call, self._call(call))

    def _call(self, call: ApiCall) -> Json:
        return self._api.call(call.name, **self._with_arns(call.parameters))

    def _with_arns(self, value: Any) -> Any:
        """The same with the ARN for each `Arn` in it."""
        match value:
            case Arn(name):
                if not self._arns.get(name):
                    raise CloudError(f"AWS did not report the ARN of {name}")
                return self._arns[name]
            case list():
                return [self._with_arns(item) for item in value]
            case dict():
                return {key: self._with_arns(item) for key, item in value.items()}
        return value

    def _learn(self, call: ApiCall, answer: Json) -> None:
        """Note what the answer says of what was created; another's host name is not published."""
        name, hostname = text(call.parameters.get("LoadBalancerName")), text(answer.get("DNSName"))
        self.hostname = hostname if name and name.lower() in hostname.lower() else self.hostname
        for record in objects(answer.get("LoadBalancers")):
            self._arns[text(record.get("LoadBalancerName"))] = text(record.get("LoadBalancerArn"))
            self.hostname = text(record.get("DNSName"))
        for record in objects(answer.get("TargetGroups")):
            self._arns[text(record.get("TargetGroupName"))] = text(record.get("TargetGroupArn"))

    def _register(self, call: ApiCall) -> None:
        """What does not run keeps no other out, and a full group stops nothing else."""
        group = call.parameters["TargetGroupArn"].name
        if group in self._full_groups:
            return
        try:
            self.invalid_targets |= self._change_targets(call)
        except AwsError as error:
            if error.code not in GROUP_FULL:
                raise
            self._full_groups.add(group)

    def _change_targets(self, call: ApiCall) -> set[str]:
        """Make the call for all instances but those that AWS does not take, which are returned."""
        member, key = (
            ("Targets", "Id") if "Targets" in call.parameters else ("Instances", "InstanceId")
        )

        def change(left: list[str]) -> Json:
            listed = [{key: item} for item in left]
            return self._call(ApiCall(call.name, {**call.parameters, member: listed}))

        instances = {item[key] for item in call.parameters[member]}
        left = sorted(instances - self.invalid_targets)
        _, invalid = call_without_wrong_ids(INVALID_INSTANCE, left, change)
        return set(invalid)

    def _delete(self, call: ApiCall) -> None:
        try:
            self._call(call)
        except AwsError as error:
            if error.code in NOT_FOUND:
                return
            if error.code != IN_USE or call.name != "elbv2:DeleteTargetGroup":
                raise
            group = call.parameters["TargetGroupArn"]
            if others := self._other_users(self._with_arns(group)):
                used = (
                    f"target group {group.name} is used by {', '.join(others)}: take it out there"
                )
                raise CloudError(used) from error
            raise RetryAfter(str(error), IN_USE_RETRY) from error

    def _other_users(self, arn: str) -> list[str]:
        """The names of load balancers besides this one that a target group stands behind."""
        name = "elbv2:DescribeTargetGroups"
        groups = self._api.list_pages(name, "TargetGroups", TargetGroupArns=[arn])
        users = {user for group in groups for user in group.get("LoadBalancerArns") or ()}
        return sorted(balancer_name(user) for user in users - {*self._arns.values()})


def balancer_name(arn: str) -> str:
    """The name in `arn:…:loadbalancer/net/<name>/<id>`."""
    return arn.rpartition("/")[0].rpartition("/")[2]
