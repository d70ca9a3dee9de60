"""RBAC policy rules as data: each declared once, next to the code that needs it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

RuleTarget = tuple[str, str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Verbs on one resource, subresource included, and what for (several purposes with `; `).

    An empty `namespace` means all of them and what has none; no `names` means every object.
    """

    resource: str
    verbs: tuple[str, ...]
    purpose: str
    group: str = ""
    namespace: str = ""
    names: tuple[str, ...] = ()

    @property
    def target(self) -> RuleTarget:
        """What the verbs apply to: namespace, group, resource, names."""
        return (self.namespace, self.group, self.resource, self.names)

    @property
    def purposes(self) -> list[str]:
        return self.purpose.split("; ")

    def covers(self, other: "PolicyRule") -> bool:
        """Whether this rule makes the other one redundant."""
        return (
            (self.group, self.resource) == (other.group, other.resource)
            and self.namespace in ("", other.namespace)
            and (not self.names or {*self.names} >= {*other.names} > set())
            and {*other.verbs} <= {*self.verbs}
        )


def event_rule(namespace: str = "default") -> PolicyRule:
    """What an `EventRecorder` needs for Events in this namespace; in every one when it is empty.

    Those about objects without a namespace are in `default`.
    """
    return PolicyRule("events", ("create",), "what people should know", namespace=namespace)


def merge_rules(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """The same rules for one account: one for each target, in a stable order, none redundant."""
    by_target: dict[RuleTarget, PolicyRule] = {}
    for rule in rules:
        known = by_target.get(rule.target)
        by_target[rule.target] = _both(known, rule) if known else rule
    merged = sorted(by_target.values(), key=lambda rule: (rule.target, rule.verbs))
    return tuple(
        rule
        for rule in merged
        if not any(other.covers(rule) for other in merged if other is not rule)
    )


def _both(one: PolicyRule, other: PolicyRule) -> PolicyRule:
    verbs = dict.fromkeys([*one.verbs, *other.verbs])
    purposes = dict.fromkeys([*one.purposes, *other.purposes])
    return replace(one, verbs=tuple(verbs), purpose="; ".join(purposes))
