"""One planted fault: how it is planted, which check finds it, and what it tells to do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec

import pytest

from tests.integration.check.world import CheckWorld

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a fault is planted: in the world, in a directory of its own, or in this process."""

    world: CheckWorld
    directory: Path
    patch: pytest.MonkeyPatch


Plant = Callable[[Ground], AbstractContextManager[Sequence[str]]]
"""Gives, while the fault is there, the flags that are needed to meet it."""


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """`found` is the check, a colon and a part of the message.

    `also` are other checks that the same fault makes fail or warn.
    """

    what: str
    found: str
    remedy: str
    plant: Plant
    state: str = "failed"
    also: frozenset[str] = frozenset()
    identity: str = "ccm"


fails, warns = PlantedFault, partial(PlantedFault, state="warning")


def planted(
    function: Callable[Concatenate[Ground, P], Iterator[Sequence[str]]],
) -> Callable[P, Plant]:
    """Let a generator that plants a fault be called with all but its ground."""
    manager = contextmanager(function)

    def plant(*args: P.args, **kwargs: P.kwargs) -> Plant:
        return lambda ground: manager(ground, *args, **kwargs)

    return plant


@planted
def flags(ground: Ground, *words: str) -> Iterator[Sequence[str]]:
    """Nothing but flags; `{}` stands for the directory of its own."""
    yield [word.replace("{}", str(ground.directory)) for word in words]
