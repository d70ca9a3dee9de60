"""Whether the cloud answers these credentials, shown by a cheap read of each part that is used.

That they may write as well shows only when something is written.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, failed, ok, warning
from ccm.checks.look.cloud import Read
from ccm.checks.site import Site
from ccm.errors import (
    CloudError,
    Denied,
    ImplementedElsewhere,
    NotImplementedByProvider,
    Refused,
    Throttled,
)

TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What an error of this class means."""

    error: type[CloudError]
    verdict: Callable[[str, str], Finding]
    words: str
    remedy: str


TROUBLES = (
    Trouble(
        Denied,
        failed,
        "the cloud does not let us read",
        "correct the credentials in --cloud-config, or give them the right to this call",
    ),
    Trouble(
        Throttled,
        warning,
        "the cloud refused, for rate, to read",
        "see who else uses this account; --cloud-rate and --cloud-reserve leave them room",
    ),
    Trouble(Refused, failed, "the cloud refused to read", "correct what it names"),
    Trouble(
        CloudError,
        failed,
        "no answer about",
        "check the address in --cloud-config, the way there, and that the cloud works",
    ),
)
"""The first that fits counts."""


async def look(site: Site) -> Sequence[Read]:
    return await site.reads()


def judge(reads: Sequence[Read]) -> Iterator[Finding]:
    found = [finding for trouble in TROUBLES for finding in _of(trouble, reads)]
    answered = ", ".join(dict.fromkeys(read.part for read in reads)) or "nothing"
    yield from found or [ok(f"the cloud answers about {answered}")]


def _of(trouble: Trouble, reads: Sequence[Read]) -> Iterator[Finding]:
    """One finding for all reads that met it; the first error stands for all."""
    met = [read for read in reads if read.error and _trouble(read.error) is trouble]
    if met:
        questions = ", ".join(dict.fromkeys(read.question for read in met))
        yield trouble.verdict(f"{trouble.words} {questions}: {met[0].error}", trouble.remedy)


def _trouble(error: CloudError) -> Trouble | None:
    if isinstance(error, ImplementedElsewhere | NotImplementedByProvider):
        return None
    return next(trouble for trouble in TROUBLES if isinstance(error, trouble.error))


CHECK = Check("cloud-reads", look, judge, TIMEOUT)
