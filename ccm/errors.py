"""Every error of the project, split by what the caller does about it."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Protocol

from ccm.printable import printable
from ccm.redaction import safe_text

TEST_FAILED = "the server rejected our request due to an error in our request"
"""All that an API server says of a JSON patch with a `test` that does not hold."""
BY_WEBHOOK = "failed calling webhook"
"""What an API server says, with 500, of a write that a webhook was to admit."""


class ExitCode(IntEnum):
    """How the process reports to systemd or the kubelet why it ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNPROVEN = (
        75  # EX_TEMPFAIL: a new worker, when the cloud does not answer what it needs at first
    )
    NOT_NEEDED = 77  # a worker whose controller has nothing to do: no such part, or a flag
    CONFIGURATION = 78  # EX_CONFIG of sysexits.h: starting again without a change is useless


class ConfigurationFault(Exception):
    """One thing an operator must change before a start can work.

    `field` is the flag, file or variable; `problem` says what is wrong with it; `remedy` what to
    do. The text is one line.
    """

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(printable(f"{field}: {problem}; {remedy}"))
        self.field, self.problem, self.remedy = field, problem, remedy


class NoCredentials(ConfigurationFault):
    """The plugin that gives credentials failed, which may pass: wait, and try again."""


class ConfigurationFaults(Exception):
    """All faults of a configuration together, so that an operator fixes them in one go."""

    def __init__(self, faults: list[ConfigurationFault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


class _SaidOutside(Exception):
    """Its text may be another's, of any length; what it shows is safe (`ccm.redaction`)."""

    def __str__(self) -> str:
        return safe_text(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class CloudError(_SaidOutside):
    """A cloud call failed: retry with back-off. The base of all provider errors.

    Its text is one line of at most 500 characters without secrets, whatever the cloud answered.
    """


class HasWarnings(Protocol):
    """Warnings for people, as they come up."""

    @property
    def warnings(self) -> Iterable[str]: ...


class Unanswered(CloudError):
    """The request left and has no answer: whether a write was made is unknown."""


class RetryAfter(CloudError):
    """The cloud is still at work: reconcile again after exactly `seconds`; not a failure."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Contested(RetryAfter):
    """Another client sets back what we write to a field: write it again after `seconds`."""


class NotShown(RetryAfter):
    """One answer lacks what is published: it is looked for once more before it is created."""


class LeftOut(RetryAfter):
    """All is done, but without nodes whose machines the cloud calls gone: it may be wrong."""


class Throttled(CloudError):
    """The cloud throttles; `seconds` is its own `Retry-After`, if any."""

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Denied(CloudError):
    """The cloud does not let these credentials do this (403): a person must act."""


class Unauthenticated(Denied):
    """The cloud does not take these credentials at all (401), or there are none to show.

    `source` shows operators where they are; it may be a path, and is not for tenants.
    """

    def __init__(self, message: str, source: str = "") -> None:
        super().__init__(message)
        self.source = source


class Refused(CloudError):
    """Terminal: fails until the object or the configuration changes; do not retry."""


class NotFound(Refused):
    """The cloud's positive word that the one thing asked for does not exist."""


class Conflict(Refused):
    """What was to be created is there already, or something else is in its way."""


class TakenByAnother(Refused):
    """What the object would have is another's, whose clients would come to it: what it has goes."""


class NoRoom(Refused):
    """A quota of the cloud is used up: fails until something of the kind is deleted."""


class ImplementedElsewhere(CloudError):
    """Another controller reconciles this object: stop, without an error."""


class NotImplementedByProvider(CloudError):
    """This cloud cannot do this at all."""


class NotLeading(Exception):
    """This process may not write now: it is not leader, or its permission expired."""


class Outdated(Exception):
    """A write was kept back: what it was decided on has changed while it waited."""


class KubernetesError(_SaidOutside):
    """The API server answered with an error; `status` is the HTTP code, `reason` its own word."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None) -> None:
        super().__init__(f"the API server answered {status} {reason}: {message}")
        self.status, self.reason = status, reason
        self.message, self.retry_after = message, retry_after

    @property
    def is_race(self) -> bool:
        """A write met another object than it was planned for: plan again from what is there."""
        return self.status == 409 or (self.status == 422 and self.message == TEST_FAILED)

    @property
    def is_refusal(self) -> bool:
        """The very content of a write is not taken: invalid, or admission denies it.

        A webhook that does not answer denies it as well, whatever the status.
        """
        is_refused = self.status in (400, 403, 413, 422) or BY_WEBHOOK in self.message
        return is_refused and not self.is_race

    @property
    def is_denial(self) -> bool:
        """Who we are is not accepted, or may not do this; that may pass without us."""
        return self.status in (401, 403)

    @property
    def is_gone(self) -> bool:
        """The object is not there, by the API server's own word: a proxy answers 404 as well."""
        return self.status == 404 and self.reason == "NotFound"

    @property
    def is_denied_or_gone(self) -> bool:
        """What was asked for is not there, or not for us; any other error may pass."""
        return self.status == 403 or self.is_gone


class Unreachable(_SaidOutside):
    """No answer from the API server: refused, reset, timed out or malformed."""


class AccessRefused(Exception):
    """The API server refuses our credentials (401) or grants us too little (403), by now.

    What another machine says may change without us: wait, and try again. One line, with a remedy.
    """


class AnswerTooLarge(Unreachable):
    """The answer of the API server is larger than what is taken in at once."""


class CannotListen(Exception):
    """An address to listen on is in use or missing; the text names the flag. A restart may help."""
