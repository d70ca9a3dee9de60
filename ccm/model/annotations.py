"""The annotations by which Services say what their load balancer is to be, of one cloud."""

from dataclasses import dataclass, field
from typing import ClassVar, Self

from ccm.errors import Refused
from ccm.model.service import Service

MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ServiceAnnotations:
    """Those of one Service, by names without `PREFIX`.

    In `warnings` is a sentence for each that has not its effect; `KNOWN` are all that may have one.
    """

    PREFIX: ClassVar[str] = ""
    KNOWN: ClassVar[frozenset[str]] = frozenset()

    service: Service
    warnings: list[str] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, service: Service) -> Self:
        """Those of a Service; unknown ones have a warning already."""
        found = cls(service)
        for name in sorted(service.annotations):
            if name.startswith(cls.PREFIX) and name.removeprefix(cls.PREFIX) not in cls.KNOWN:
                found.warnings.append(f"annotation {name} is ignored: it is not known")
        return found

    def has(self, name: str) -> bool:
        return self.PREFIX + name in self.service.annotations

    def ignore(self, name: str, why: str) -> None:
        """Say why one has no effect."""
        self.warnings.append(f"annotation {self.PREFIX}{name} is ignored: {why}")


def check_length(key: str, value: str, most: int) -> None:
    """Raise `Refused` for one of more characters: some are read for each port, or node."""
    if len(value) > most:
        raise Refused(f"annotation {key} has more than {most} characters")


def whole_number(written: str) -> int | None:
    """What digits of a tenant stand for; None for other text, and for more than anybody means."""
    is_one = written.isascii() and written.isdecimal() and len(written) <= MOST_DIGITS
    return int(written) if is_one else None
