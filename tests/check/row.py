"""One planted fault: how it is planted, which check finds it, and what it tells to do."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ccm.checks.finding import Finding
from tests.check.world import World


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a fault is planted: in the world, in a directory of its own, or in this process."""

    world: World
    directory: Path
    patch: pytest.MonkeyPatch


Plant = Callable[[Ground], Iterator[Sequence[str]]]
"""Yields, while the fault is there, the flags that are needed to meet it."""


@dataclass(frozen=True, slots=True)
class Row:
    """`also` are other checks that the same fault makes fail or warn."""

    what: str
    check: str
    seen: str
    remedy: str
    plant: Plant
    state: str = "failed"
    also: frozenset[str] = frozenset()
    identity: str = "ccm"


def states(findings: Iterable[Finding]) -> list[str]:
    return [str(finding.state) for finding in findings]


def flags(*words: str) -> Plant:
    """A fault that is nothing but flags."""

    def plant(ground: Ground) -> Iterator[Sequence[str]]:
        yield words

    return plant
