"""Looking up many objects by ID in one call, although AWS fails the call for one wrong ID."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ccm.errors import CloudError
from ccm.model.objects import Json
from ccm.providers.aws.failures import AwsError


@dataclass(frozen=True, slots=True)
class Found:
    """The records of one question, the IDs that AWS denies, and those it cannot read."""

    records: Sequence[Json]
    absent: frozenset[str] = frozenset()
    malformed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of object is asked for and denied."""

    absent: str  # the error codes
    malformed: str
    id: re.Pattern[str]


def look_up(
    kind: Kind, ids: Sequence[str], ask: Callable[[Sequence[str]], Sequence[Json]]
) -> Found:
    """Ask about `ids`, and again without those that AWS names as wrong, until it answers.

    Each round takes at least one ID away, so there are as many rounds as there are errors. An error
    that names no ID that was asked for says nothing about any of them: it is raised.
    """
    left = list(ids)
    absent: set[str] = set()
    malformed: set[str] = set()
    while left:
        try:
            return Found(ask(left), frozenset(absent), frozenset(malformed))
        except AwsError as error:
            if error.code not in (kind.absent, kind.malformed):
                raise
            named = set(kind.id.findall(str(error))) & set(left)
            if not named:
                raise CloudError(str(error)) from error
            (absent if error.code == kind.absent else malformed).update(named)
            left = [one for one in left if one not in named]
    return Found((), frozenset(absent), frozenset(malformed))
