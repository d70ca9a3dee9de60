"""What a source says of flags before it is parsed: the command line, variables, or a file."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ccm.errors import ConfigurationFault


@dataclass(frozen=True, slots=True)
class RawValue:
    """The texts of one flag, not parsed; `source` is a variable or file, empty for a flag."""

    texts: tuple[str, ...]
    source: str = ""


@dataclass
class RawValues:
    """What one source says, by field name, and what is wrong with it."""

    values: dict[str, RawValue] = field(default_factory=dict)
    faults: list[ConfigurationFault] = field(default_factory=list)


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to do about a name that is not known."""
    from difflib import get_close_matches  # only after a typing error

    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else "'ccm-supervisor start --help' lists all flags"
