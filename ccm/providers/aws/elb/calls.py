"""The calls that a plan for a load balancer consists of, decided upon and not made yet."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.model.objects import Json

MAX_INSTANCES_PER_CALL = 100


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
    """The same call for all instances, so many at a time; `key` names one in the list `member`."""
    ordered = sorted(instances)
    for at in range(0, len(ordered), MAX_INSTANCES_PER_CALL):
        listed = [{key: one} for one in ordered[at : at + MAX_INSTANCES_PER_CALL]]
        yield ApiCall(name, {**which, member: listed})
