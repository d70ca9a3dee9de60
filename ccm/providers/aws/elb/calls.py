"""The calls that a plan for a load balancer consists of, decided upon and not made yet."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.model.objects import Json

MAX_TARGETS_PER_CALL = 100
"""As upstream's controller registers them; a classic balancer takes all instances in one call."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call of one of the `API_ACTIONS`; `undo` puts back what made way for it, if it fails."""

    name: str
    parameters: Mapping[str, Any]
    undo: "ApiCall | None" = None


@dataclass(frozen=True, slots=True)
class Arn:
    """Stands in a call for the ARN of a load balancer or target group, which may come to be."""

    name: str


def instance_calls(
    name: str, which: Json, member: str, key: str, instances: Iterable[str]
) -> Iterator[ApiCall]:
    """The same call for all instances, targets so many at a time; `key` names one in `member`."""
    ordered = [{key: instance} for instance in sorted(instances)]
    size = MAX_TARGETS_PER_CALL if name.startswith("elbv2:") else len(ordered) or 1
    for at in range(0, len(ordered), size):
        yield ApiCall(name, {**which, member: ordered[at : at + size]})
