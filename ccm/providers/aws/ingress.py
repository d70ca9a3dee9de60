"""Making the calls of planned changes of security groups."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ccm.errors import CloudError, NoRoom
from ccm.model.objects import Json
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.security_groups import ALL, Authorize, Rule, RuleChange

FULL = "RulesPerSecurityGroupLimitExceeded"
RACED = ("InvalidPermission.Duplicate", "InvalidPermission.NotFound")


def perform(api: AwsApi, change: RuleChange) -> None:
    """Make one call; a race with another writer is a `CloudError`, to be planned again."""
    verb = "Authorize" if isinstance(change, Authorize) else "Revoke"
    try:
        api.call(
            f"ec2:{verb}SecurityGroupIngress",
            GroupId=change.group_id,
            IpPermissions=permissions(change.rules),
        )
    except AwsError as error:
        if error.code == FULL:
            raise NoRoom(
                f"security group {change.group_id} has no room for {len(change.rules)} more rules:"
                " raise the quota 'Inbound or outbound rules per security group', or set"
                " DisableSecurityGroupIngress"
            ) from error
        if error.code in RACED:
            raise CloudError(str(error)) from error
        raise


def permissions(rules: Iterable[Rule]) -> list[Json]:
    """The rules as a parameter; sources of the same ports together."""
    members: Mapping[tuple[str, int, int], Json] = defaultdict(dict)
    for rule in rules:
        key, name = _source_key(rule.source)
        source = {name: rule.source} | ({"Description": rule.note} if rule.note else {})
        members[rule.protocol, rule.first, rule.last].setdefault(key, []).append(source)
    return [_permission(*ports, sources) for ports, sources in members.items()]


def _permission(protocol: str, first: int, last: int, sources: Json) -> Json:
    ports = {} if protocol == ALL else {"FromPort": first, "ToPort": last}
    return {"IpProtocol": protocol, **ports, **sources}


def _source_key(source: str) -> tuple[str, str]:
    if source.startswith("sg-"):
        return "UserIdGroupPairs", "GroupId"
    return ("Ipv6Ranges", "CidrIpv6") if ":" in source else ("IpRanges", "CidrIp")
