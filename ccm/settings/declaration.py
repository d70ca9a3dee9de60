"""How a flag is declared: one field of a dataclass, with what the command line and docs need."""

from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any

from ccm.durations import format_duration
from ccm.settings import parsers


class Origin(StrEnum):
    """Where a flag is from, and whether it does something here."""

    UPSTREAM = "upstream"
    NO_EFFECT = "no effect"
    OURS = "ours"


def _last(values: Sequence[Any]) -> Any:
    return values[-1]


def _chained(values: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(values))


def _merged(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for part in values for key, value in part.items()}


@dataclass(frozen=True, slots=True)
class Kind:
    """A syntax: how a value is read and shown, and what several texts of one flag mean together."""

    metavar: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    join: Callable[[Sequence[Any]], Any] = _last

    @property
    def repeats(self) -> bool:
        """Whether a second text adds to the first one instead of replacing it."""
        return self.join is not _last

    @property
    def is_mapping(self) -> bool:
        return self.join is _merged


def _listed(values: Sequence[Any]) -> str:
    return ",".join(str(value) for value in values)


def _mapped(values: dict[str, Any]) -> str:
    return ",".join(
        f"{key}={f'{value:g}' if isinstance(value, float) else str(value).lower()}"
        for key, value in values.items()
    )


TEXT = Kind("TEXT", str)
NAME = Kind("NAME", parsers.not_empty)
FILE = Kind("FILE", str)
DIRECTORY = Kind("DIR", str)
PAUSE = Kind("DURATION", parsers.pause, format_duration)
PERIOD = Kind("DURATION", parsers.period, format_duration)
BOOLEAN = Kind("BOOL", parsers.boolean, lambda value: str(value).lower())
COUNT = Kind("N", parsers.count)
AMOUNT = Kind("N", parsers.amount)
WIDTH = Kind("N", parsers.width, lambda value: str(value or ""))
SIZE = Kind("SIZE", parsers.size)
RATE = Kind("RATE", parsers.rate, lambda value: f"{value:g}")
SHARE = Kind("SHARE", parsers.number, lambda value: f"{value:g}")
PORT = Kind("PORT", parsers.port)
ADDRESS = Kind("IP", parsers.address)
LIMIT = Kind("N,SHARE%", parsers.limit)
NETWORKS = Kind("CIDR[,CIDR]", parsers.cluster_cidr, _listed)
NAMES = Kind("NAME,…", parsers.names, _listed, _chained)
CURVES = Kind("N,…", parsers.curves, _listed, _chained)
CONTROLLERS = Kind("NAME,-NAME,*", parsers.controllers, _listed, _chained)
WEBHOOKS = Kind("NAME,-NAME,*", parsers.webhooks, _listed, _chained)
CERT_KEYS = Kind("CERT,KEY[:NAME,…]", parsers.cert_key, _listed, _chained)
RATES = Kind("CLASS=RATE,…", parsers.rates, _mapped, _merged)
GATES = Kind("NAME=BOOL,…", parsers.gates, _mapped, _merged)
LEVELS = Kind("PATTERN=N,…", parsers.levels, _mapped, _merged)


def choice(*allowed: str, metavar: str = "") -> Kind:
    """One of these words; an empty one means that the flag was not given."""
    return Kind(metavar or "|".join(allowed), parsers.choice(*allowed))


@dataclass(frozen=True, slots=True)
class Flag:
    """What the command line and the documentation need to know of a setting."""

    field: str
    group: str
    default: Any
    help: str
    kind: Kind
    origin: Origin
    theirs: str | None  # upstream's default, where ours differs
    deprecated: str  # what to do instead; empty for a flag that is not

    @property
    def name(self) -> str:
        """How it is written on the command line, after `--`."""
        return self.field.replace("_", "-")

    @property
    def label(self) -> str:
        return f"--{self.name}"

    @property
    def syntax(self) -> str:
        """How it is written: a boolean may stand alone, and takes its value after `=` only."""
        short = f"-{self.name}, " if len(self.name) == 1 else ""
        value = f"[={self.kind.metavar}]" if self.kind is BOOLEAN else f" {self.kind.metavar}"
        return f"{short}--{self.name}{value}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"CCM_{self.field.upper()}"

    @property
    def shown_default(self) -> str:
        return self.kind.show(self.default) or "none"

    def read(self, texts: Sequence[str]) -> Any:
        """The value; a `ValueError` reads `problem|remedy`."""
        values = []
        for text in texts:
            try:
                values.append(self.kind.parse(text))
            except ValueError as error:
                raise ValueError(f"{text!r} {error}") from None
        return self.kind.join(values)


@dataclass(frozen=True, slots=True)
class _About:
    help: str
    kind: Kind
    origin: Origin
    theirs: str | None = None
    deprecated: str = ""


def ours(default: Any, kind: Kind, text: str) -> Any:
    """A flag that upstream does not have."""
    return _field(default, _About(text, kind, Origin.OURS))


def upstream(
    default: Any, kind: Kind, text: str, *, theirs: str | None = None, deprecated: str = ""
) -> Any:
    """A flag of upstream with its meaning; `theirs` is its default where ours differs."""
    return _field(default, _About(text, kind, Origin.UPSTREAM, theirs, deprecated))


def ignored(default: Any, kind: Kind, text: str, *, deprecated: str = "") -> Any:
    """A flag of upstream that is checked and changes nothing here; `text` says why."""
    return _field(default, _About(text, kind, Origin.NO_EFFECT, None, deprecated))


def _field(default: Any, about: _About) -> Any:
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"about": about})
    return field(default=default, metadata={"about": about})


def flag_of(item: "Field[Any]", group: str) -> Flag:
    """The flag that a field of a group declares."""
    about: _About = item.metadata["about"]
    is_mapping = callable(item.default_factory)
    return Flag(
        field=item.name,
        group=group,
        default={} if is_mapping else item.default,
        help=about.help,
        kind=about.kind,
        origin=about.origin,
        theirs=about.theirs,
        deprecated=about.deprecated,
    )
