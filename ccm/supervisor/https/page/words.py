"""How a fact reads to a person. What is missing, or not what it should be, reads as a dash or 0."""

from ccm.durations import format_duration
from ccm.supervisor.https.page.markup import Markup, element

LONGEST = 300  # characters of one fact
HUGE = 1e15
DASH = "–"

TONES = {
    "good": ("running", "standby", "skipped", "open", "made", "permit", "settled again"),
    "bad": ("failed", "backoff", "shut", "refused", "held", "cannot settle"),
}
"""State → how it is coloured, "fair" where it is not named; the word says it, too."""


def number(value: object) -> float:
    """A number that can be; 0 for everything else."""
    return value if isinstance(value, int | float) and abs(value) < HUGE else 0


def plain(value: object) -> str:
    shown = "" if value is None else str(value)
    return f"{shown[: LONGEST - 1]}…" if len(shown) > LONGEST else shown or DASH


def state(value: object) -> Markup:
    word = plain(value)
    tone = next((tone for tone, words in TONES.items() if word in words), "fair")
    return element("strong", word, class_=tone)


def count(value: object) -> str:
    return DASH if value is None else f"{number(value):,.0f}"


def pace(value: object) -> str:
    return DASH if value is None else f"{number(value):,g}"


def mebibytes(value: object) -> str:
    return DASH if value is None else f"{number(value) / 2**20:,.0f} MiB"


def duration(value: object) -> str:
    """As exact as is of use: `3.2s`, `45s`, `5m20s`, `26h3m`."""
    if value is None:
        return DASH
    seconds = max(number(value), 0.0)
    step = 0.1 if seconds < 10 else 1 if seconds < 3600 else 60
    return format_duration(round(seconds / step) * step)


def ago(value: object) -> str:
    return DASH if value is None else f"{duration(value)} ago"


def hence(value: object) -> str:
    return DASH if value is None else f"in {duration(value)}"


def listing(value: object) -> str:
    return plain(", ".join(map(str, value)) if isinstance(value, list) else value)


def some(many: object, one: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count(many)} {one if number(many) == 1 else f'{one}s'}"
