"""The security groups that are made for load balancers, one each, and found by their names."""

import hashlib
import time
from collections.abc import Iterable

from ccm.cloud.newest import Newest
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.objects import text
from ccm.model.service import Service
from ccm.providers.aws.client import AwsError, retry_on
from ccm.providers.aws.elb.load_balancers import ElbDependencies, change_ingress
from ccm.providers.aws.elb.nlb_desired import target_group_prefix
from ccm.providers.aws.elb.request import LoadBalancerRequest
from ccm.providers.aws.security_groups import (
    IngressRule,
    SecurityGroup,
    packet_size_rule,
    plan_ingress,
)
from ccm.providers.aws.tags import (
    SERVICE_UID_TAG,
    ClusterTag,
    is_unmarked,
    read_tags,
    says_ownership,
    tag_list,
)

GROUP_TO_CREATE = "sg-"
"""Stands for the ID of a security group that is not created yet."""
GROUP_IN_USE = ("DependencyViolation", "InvalidGroup.InUse")
GROUP_IN_USE_RETRY = 5.0  # seconds, at first, until a group that was in use is tried again


def classic_group_name(elb_name: str) -> str:
    """The name of the group of a Classic Load Balancer (upstream's)."""
    return f"k8s-elb-{elb_name}"


def nlb_group_name(service: Service, cluster_name: str) -> str:
    """The name of the group of an NLB (upstream's, which has the flag --cluster-name in it)."""
    identity = f"{cluster_name}{service.name}{service.namespace}{service.uid}"
    return target_group_prefix(service.key) + hashlib.sha256(identity.encode()).hexdigest()[:10]


def ingress_rules(request: LoadBalancerRequest) -> frozenset[IngressRule]:
    """Who may come in at the listeners, and messages about the size of packets from there."""
    ports = {(port.protocol.lower(), port.number) for port in request.ports}
    clients = {IngressRule(kind, n, n, cidr) for kind, n in ports for cidr in request.ranges}
    return frozenset(clients | {packet_size_rule(cidr) for cidr in request.ranges})


def _is_ours(group: SecurityGroup, tag: ClusterTag) -> bool:
    return tag.owns(group.tags) or is_unmarked(group.tags)


def find_leftover(
    groups: Iterable[SecurityGroup], name: str, tag: ClusterTag
) -> SecurityGroup | None:
    """The group of this name if it is ours to delete."""
    return next((group for group in groups if group.name == name and _is_ours(group, tag)), None)


class ElbSecurityGroups:
    """The groups of load balancers, found by name, so that a leftover is found, too."""

    def __init__(self, elb: ElbDependencies) -> None:
        self._api, self._vpc = elb.api, elb.vpc
        self._in_use_timeout = elb.timings.group_in_use_timeout
        self._in_use_since: dict[str, float] = {}  # groups that could not be deleted, by ID
        self._sure = Newest[str, str]()  # names by ID, as two answers had them

    def find(self, name: str, tag: ClusterTag) -> SecurityGroup | None:
        """The group of this name; `Refused` when another owner took it."""
        for group in self._vpc.security_groups(name):
            if not _is_ours(group, tag):
                raise Refused(f"security group {group.name} carries the tags of another owner")
            return group
        return None

    def has_leftover(self, name: str, tag: ClusterTag) -> bool:
        """Whether there is a group of this name that is ours to delete."""
        return find_leftover(self._vpc.security_groups(name), name, tag) is not None

    def leftover(
        self, groups: Iterable[SecurityGroup], name: str, tag: ClusterTag
    ) -> SecurityGroup | None:
        """As `find_leftover`, by two answers: what has its ID is closed, and it is deleted."""
        if found := find_leftover(groups, name, tag):
            self._verify(found)
        return found

    def _verify(self, group: SecurityGroup) -> None:
        """Raise where one answer mixes up groups: another's may be in use by nothing."""
        if self._sure.get(group.id) != group.name:
            if any(item.name != group.name for item in self._vpc.groups_with([group.id])):
                raise CloudError(f"DescribeSecurityGroups: two answers differ about {group.name}")
            self._sure[group.id] = group.name

    def ensure(
        self, group: SecurityGroup | None, name: str, request: LoadBalancerRequest
    ) -> SecurityGroup:
        """The group with the rules that the request needs, made if it is not there."""
        found = group or self._create(name, request)
        self._in_use_since.pop(found.id, None)
        for change in plan_ingress(found, ingress_rules(request), found.rules):
            change_ingress(self._api, change)
        return found

    def delete(self, group: SecurityGroup) -> None:
        """Delete the group; `RetryAfter` while its load balancer still holds it."""
        self._verify(group)
        try:
            self._api.call("ec2:DeleteSecurityGroup", GroupId=group.id)
        except AwsError as error:
            if error.code in GROUP_IN_USE:
                raise self._in_use(group) from error
            if error.code != "InvalidGroup.NotFound":
                raise
        self._in_use_since.pop(group.id, None)

    def _in_use(self, group: SecurityGroup) -> CloudError:
        """The error for a group in use: by AWS itself for a few minutes, or by someone else."""
        since = self._in_use_since.setdefault(group.id, time.monotonic())
        groups = self._vpc.security_groups()
        users = {g.id for g in groups if any(rule.source == group.id for rule in g.rules)}
        if others := sorted(users - {group.id}):
            named = f"is named in rules of {', '.join(others)}: take it out there"
            return CloudError(f"security group {group.name} {named}")
        age = time.monotonic() - since
        if age > self._in_use_timeout:
            return CloudError(
                f"security group {group.name} is in use by something that is not ours"
            )
        return RetryAfter(
            f"security group {group.name} is still in use", max(GROUP_IN_USE_RETRY, age / 4)
        )

    def _create(self, name: str, request: LoadBalancerRequest) -> SecurityGroup:
        ours = {key: value for key, value in request.tags.items() if says_ownership(key)}
        tags = {"ResourceType": "security-group", "Tags": tag_list(ours)}
        with retry_on(["InvalidGroup.Duplicate"]):
            answer = self._api.call(
                "ec2:CreateSecurityGroup",
                GroupName=name,
                Description=f"Security group for Kubernetes ELB {request.name} ({request.key})",
                VpcId=self._vpc.id,
                TagSpecifications=[tags],
            )
        group_id, said = text(answer.get("GroupId")), read_tags(answer.get("Tags"))
        uid = request.tags[SERVICE_UID_TAG]
        if not group_id or said.get(SERVICE_UID_TAG, uid) != uid:  # or it is another's
            raise CloudError(f"AWS did not report the ID of security group {name}")
        return SecurityGroup(group_id, name, ours, frozenset())
