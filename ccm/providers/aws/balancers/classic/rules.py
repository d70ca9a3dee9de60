"""What the nodes' security groups let in for classic balancers: all that their group sends."""

from collections.abc import Collection, Iterator

from ccm.providers.aws.security_groups import ALL, Group, Rule, RuleChange, changes

NOTE = "kubernetes.io/rule/elb"


def node_rule(group_id: str, name: str) -> Rule:
    return Rule(ALL, -1, -1, group_id, f"{NOTE}={name}")


def rule_changes(
    group: Group, wanted: frozenset[Rule], own_group: str, done: Collection[str]
) -> Iterator[RuleChange]:
    """What one balancer needs changed; rules from its own group and those in `done` may go.

    A group that was given by annotation may be another balancer's as well, and AWS has one rule for
    both: `done` has it once nobody else uses it. Only rules with our note go then.
    """
    surplus = {
        rule
        for rule in group.rules
        if rule.protocol == ALL
        and (rule.source == own_group or (rule.source in done and rule.note.startswith(NOTE)))
    }
    yield from changes(group, wanted, surplus)


def sources(group: Group, name: str) -> set[str]:
    """The security groups for which this group was opened in the name of a balancer."""
    return {rule.source for rule in group.rules if rule.note == f"{NOTE}={name}"}
