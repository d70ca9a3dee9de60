"""Every error of the project, split by what the caller does about it."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process says to systemd or the kubelet when it ends."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_NEEDED = 77  # a worker whose duty the chosen provider does not have
    CONFIGURATION = 78  # EX_CONFIG of sysexits.h: starting again without a change is pointless


class ConfigurationFault(Exception):
    """One thing an operator must change before a start can work.

    `field` is the flag, file or variable; `problem` says what is wrong with it; `remedy` what to
    do. The text is one line.
    """

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(_one_line(f"{field}: {problem}; {remedy}"))
        self.field, self.problem, self.remedy = field, problem, remedy


class ConfigurationFaults(Exception):
    """All faults of a configuration together, so that an operator fixes them in one go."""

    def __init__(self, faults: list[ConfigurationFault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


class CloudError(Exception):
    """A cloud call that gave no answer: retry with back-off. The base of all provider errors."""


class RetryAfter(CloudError):
    """Work in progress at the cloud: come back after exactly `seconds`; not a failure."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Throttled(CloudError):
    """The cloud refused for rate; `seconds` is its own word on when to come back, if any."""

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Denied(CloudError):
    """The cloud does not let these credentials do this (401, 403): a person must act."""


class Refused(CloudError):
    """Will not work until the object or the configuration changes: do not retry."""


class NoRoom(Refused):
    """A quota is used up: it will not work until something of the kind is gone."""


class ImplementedElsewhere(CloudError):
    """Another controller looks after this object: stop quietly."""


class NotImplementedByProvider(CloudError):
    """This cloud cannot do this at all."""


class NoPermit(Exception):
    """This process may not write now: it does not lead, or its permission ran out."""


class KubernetesError(Exception):
    """The API server answered with an error; `status` is the HTTP code, `reason` its own word."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason = status, reason
        self.message, self.retry_after = message, retry_after


class Unreachable(Exception):
    """No answer from the API server: refused, reset, timed out or not understood."""


class CannotListen(Exception):
    """An address of ours is taken or not there: the text names the flag; a later start may work."""


def _one_line(text: str) -> str:
    """The text on one line: what cannot be printed is written as Python would write it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
