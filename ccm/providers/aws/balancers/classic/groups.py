"""The security group that is made for a classic balancer and goes with it."""

import time

from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.objects import text
from ccm.providers.aws.balancers.classic.desired import own_group_name, own_group_rules
from ccm.providers.aws.balancers.kind import Surroundings
from ccm.providers.aws.balancers.request import Request
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.ingress import perform
from ccm.providers.aws.security_groups import Group, changes
from ccm.providers.aws.tags import Mark, tag_list

SOON = 5.0  # seconds until AWS has let go of a group that was in use
PATIENCE = 600.0  # seconds after which it is told (upstream's)
ABSENT = "InvalidGroup.NotFound"
IN_USE = ("DependencyViolation", "InvalidGroup.InUse")


class OwnGroups:
    """Found by name, so that one that is left over after an interruption is found, too."""

    def __init__(self, around: Surroundings) -> None:
        self._api, self._network = around.api, around.network
        self._in_use_since: dict[str, float] = {}  # groups that could not be deleted, by ID

    def find(self, name: str, mark: Mark) -> Group | None:
        """The group of the balancer of this name; `Refused` when another owner took its name."""
        for group in self._network.groups_in_vpc(group_name=[own_group_name(name)]):
            if not mark.owns(group.tags):
                raise Refused(f"security group {group.name} carries the tags of somebody else")
            return group
        return None

    def ensure(self, group: Group | None, request: Request) -> Group:
        """The group with the rules that the request needs."""
        there = group or self._create(request)
        for change in changes(there, own_group_rules(request), there.rules):
            perform(self._api, change)
        return there

    def delete(self, group: Group) -> None:
        """Take the group away; `RetryAfter` while its balancer still holds it."""
        try:
            self._api.call("ec2:DeleteSecurityGroup", GroupId=group.id)
        except AwsError as error:
            if error.code in IN_USE:
                raise self._obstacle(group) from error
            if error.code != ABSENT:
                raise
        self._in_use_since.pop(group.id, None)

    def _obstacle(self, group: Group) -> CloudError:
        """What keeps a group: AWS itself for a few minutes, or somebody who has to be told."""
        since = self._in_use_since.setdefault(group.id, time.monotonic())
        groups = self._network.groups_in_vpc()
        users = [g.id for g in groups if any(rule.source == group.id for rule in g.rules)]
        if others := sorted(set(users) - {group.id}):
            named = f"is named in rules of {', '.join(others)}: take it out there"
            return CloudError(f"security group {group.name} {named}")
        if time.monotonic() - since > PATIENCE:
            return CloudError(
                f"security group {group.name} is in use by something that is not ours"
            )
        return RetryAfter(f"security group {group.name} is still in use", SOON)

    def _create(self, request: Request) -> Group:
        name = own_group_name(request.name)
        tags = {"ResourceType": "security-group", "Tags": tag_list(request.tags)}
        try:
            answer = self._api.call(
                "ec2:CreateSecurityGroup",
                GroupName=name,
                Description=f"Security group for Kubernetes ELB {request.name} ({request.key})",
                VpcId=self._network.vpc,
                TagSpecifications=[tags],
            )
        except AwsError as error:
            if error.code == "InvalidGroup.Duplicate":
                raise RetryAfter(f"{error}: looked at again", 1.0) from error
            raise
        return Group(text(answer.get("GroupId")), name, request.tags, frozenset())
