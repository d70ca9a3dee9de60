"""How a flag is declared: one field of a dataclass, with what the command line and docs need."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from ccm.settings.syntax import BOOLEAN, InvalidValue, Syntax


class Origin(StrEnum):
    """Where a flag is from, and whether it does something here."""

    UPSTREAM = "upstream"
    NO_EFFECT = "no effect"
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class Flag:
    """What the command line and the documentation need to know of a setting."""

    field: str
    group: str
    default: Any
    help: str
    syntax: Syntax
    origin: Origin
    upstream_default: str | None = None  # only where ours differs
    deprecated: str = ""  # what to do instead; empty for a flag that is not

    @property
    def name(self) -> str:
        """How it is written on the command line, after `--`."""
        return self.field.replace("_", "-")

    @property
    def label(self) -> str:
        return f"--{self.name}"

    @property
    def usage(self) -> str:
        """How it is written: a boolean may stand alone, and takes its value after `=` only."""
        short = f"-{self.name}, " if len(self.name) == 1 else ""
        metavar = self.syntax.metavar
        value = f"[={metavar}]" if self.syntax is BOOLEAN else f" {metavar}"
        return f"{short}{self.label}{value}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"CCM_{self.field.upper()}"

    @property
    def default_text(self) -> str:
        return self.syntax.format(self.default) or "none"

    def parse(self, texts: Sequence[str]) -> Any:
        """The value of these texts together; raises `InvalidValue`, which quotes the wrong one."""
        values = []
        for text in texts:
            try:
                values.append(self.syntax.parse(text))
            except InvalidValue as error:
                raise InvalidValue(f"{text!r} {error.problem}", error.remedy) from None
        return self.syntax.join(values)


def _declared(origin: Origin, default: Any, syntax: Syntax, text: str, **more: str) -> Any:
    """A flag; `more` is further fields of `Flag`, or a `heading`."""
    metadata = {"syntax": syntax, "help": text, "origin": origin, **more}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


ours = partial(_declared, Origin.OURS)
"""A flag that upstream does not have."""

upstream = partial(_declared, Origin.UPSTREAM)
"""A flag of upstream with its meaning."""

ignored = partial(_declared, Origin.NO_EFFECT)
"""A flag of upstream that is checked and changes nothing here; the text says why."""
