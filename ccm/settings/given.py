"""What somebody wrote for flags, before it is understood, and where."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ccm.errors import ConfigurationFault


@dataclass(frozen=True, slots=True)
class Given:
    """The texts of one flag; `where` is a variable or a file, empty for the command line."""

    texts: tuple[str, ...]
    where: str = ""


@dataclass
class Source:
    """What one place says, by field name, and what is wrong with it."""

    given: dict[str, Given] = field(default_factory=dict)
    faults: list[ConfigurationFault] = field(default_factory=list)


def nearest(name: str, known: Iterable[str]) -> str:
    """What to do about a name that is not known."""
    from difflib import get_close_matches  # only who mistypes waits for it

    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else "'ccm-supervisor start --help' lists all flags"
