"""A right at the Kubernetes API as data: declared once, next to the code that needs it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

Target = tuple[str, str, str, tuple[str, ...]]


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
    def target(self) -> Target:
        """What the verbs are about: namespace, group, resource, names."""
        return (self.namespace, self.group, self.resource, self.names)

    @property
    def purposes(self) -> list[str]:
        return self.purpose.split("; ")

    def covers(self, other: "PolicyRule") -> bool:
        """Whether who has this right needs the other one no more."""
        return (
            (self.group, self.resource) == (other.group, other.resource)
            and self.namespace in ("", other.namespace)
            and (not self.names or {*self.names} >= {*other.names} > set())
            and {*other.verbs} <= {*self.verbs}
        )


def joined(rights: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """The same rights for one identity: one entry a target, in a stable order, none twice."""
    by_target: dict[Target, PolicyRule] = {}
    for right in rights:
        known = by_target.get(right.target)
        by_target[right.target] = _both(known, right) if known else right
    merged = sorted(by_target.values(), key=lambda right: (right.target, right.verbs))
    return tuple(
        right
        for right in merged
        if not any(other.covers(right) for other in merged if other is not right)
    )


def _both(one: PolicyRule, other: PolicyRule) -> PolicyRule:
    verbs = dict.fromkeys([*one.verbs, *other.verbs])
    purposes = dict.fromkeys([*one.purposes, *other.purposes])
    return replace(one, verbs=tuple(verbs), purpose="; ".join(purposes))
