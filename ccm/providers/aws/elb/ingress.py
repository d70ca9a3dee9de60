"""Performing planned changes of security groups, of nodes' groups above all."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from ccm.errors import CloudError, NoRoom
from ccm.model.objects import Json
from ccm.providers.aws.client import AwsApi, AwsError
from ccm.providers.aws.elb.load_balancers import ElbDependencies
from ccm.providers.aws.security_groups import (
    ALL_PROTOCOLS,
    AuthorizeIngress,
    IngressChange,
    IngressRule,
    RevokeIngress,
    SecurityGroup,
)
from ccm.providers.aws.tags import ClusterTag
from ccm.providers.aws.vpc import BackendInstance

GROUP_FULL = "RulesPerSecurityGroupLimitExceeded"
RACES = ("InvalidPermission.Duplicate", "InvalidPermission.NotFound")


class NodeIngress:
    """The rules of one load balancer in nodes' groups, opened before it works and closed after.

    `plan` yields what one group needs changed.
    """

    def __init__(
        self, elb: ElbDependencies, plan: Callable[[SecurityGroup], Iterable[IngressChange]]
    ) -> None:
        self._api, self._vpc, self._plan = elb.api, elb.vpc, plan
        self._is_managed = elb.config.manages_node_ingress
        self._has_surplus = False

    def open(self, instances: Sequence[BackendInstance], tag: ClusterTag) -> None:
        """Authorize what is missing for these instances."""
        self._change(AuthorizeIngress, lambda: self._vpc.node_groups(instances, tag))

    def close(self, instances: Sequence[BackendInstance], tag: ClusterTag) -> None:
        """Revoke what is no longer wanted, if `open` saw any."""
        if self._has_surplus:
            self._change(RevokeIngress, lambda: self._vpc.node_groups(instances, tag))

    def close_everywhere(self) -> None:
        """Revoke in every group of the VPC."""
        self._change(RevokeIngress, self._vpc.security_groups)

    def _change(
        self,
        kind: type[AuthorizeIngress] | type[RevokeIngress],
        groups: Callable[[], Iterable[SecurityGroup]],
    ) -> None:
        if not self._is_managed:
            return
        with self._vpc.ingress_lock:
            planned = [change for group in groups() for change in self._plan(group)]
            self._has_surplus = any(isinstance(change, RevokeIngress) for change in planned)
            for change in planned:
                if isinstance(change, kind):
                    change_ingress(self._api, change)


def change_ingress(api: AwsApi, change: IngressChange) -> None:
    """Make one call; a race with another writer is a `CloudError`, to be planned again."""
    verb = "Authorize" if isinstance(change, AuthorizeIngress) else "Revoke"
    try:
        api.call(
            f"ec2:{verb}SecurityGroupIngress",
            GroupId=change.group_id,
            IpPermissions=ip_permissions(change.rules),
        )
    except AwsError as error:
        if error.code == GROUP_FULL:
            raise NoRoom(
                f"security group {change.group_id} has no room for {len(change.rules)} more rules:"
                " raise the quota 'Inbound or outbound rules per security group', or set"
                " DisableSecurityGroupIngress"
            ) from error
        if error.code in RACES:
            raise CloudError(str(error)) from error
        raise


def ip_permissions(rules: Iterable[IngressRule]) -> list[Json]:
    """The rules as EC2's `IpPermissions`; sources of the same ports together."""
    sources: Mapping[tuple[str, int, int], Json] = defaultdict(dict)
    for rule in rules:
        member, name = _source_fields(rule.source)
        described = {"Description": rule.description} if rule.description else {}
        ports = rule.protocol, rule.first, rule.last
        sources[ports].setdefault(member, []).append({name: rule.source, **described})
    return [_ip_permission(*ports, members) for ports, members in sources.items()]


def _ip_permission(protocol: str, first: int, last: int, sources: Json) -> Json:
    ports = {} if protocol == ALL_PROTOCOLS else {"FromPort": first, "ToPort": last}
    return {"IpProtocol": protocol, **ports, **sources}


def _source_fields(source: str) -> tuple[str, str]:
    if source.startswith("sg-"):
        return "UserIdGroupPairs", "GroupId"
    return ("Ipv6Ranges", "CidrIpv6") if ":" in source else ("IpRanges", "CidrIp")
