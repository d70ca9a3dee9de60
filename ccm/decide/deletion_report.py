"""What a node worker reports of one monitor period: which machines the cloud calls gone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GoneAnswer:
    """The cloud's positive answer that the machine of this Node does not exist."""

    name: str
    uid: str
    evidence: str
    at: float
    is_final: bool = False  # two kinds of read named the machine and said that it ended for ever


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one worker asked the cloud in one monitor period: each Node once."""

    gone: tuple[GoneAnswer, ...]
    not_gone: tuple[str, ...]


def parse_report(asked: object, gone: object, not_gone: object) -> PassReport | None:
    """The pass in a message, or None when anything in it is invalid.

    All or nothing: an entry that is left out could be the one that makes a mass, and a Node that
    comes twice would confirm itself.
    """
    if not isinstance(gone, list) or not isinstance(not_gone, list) or type(asked) is not int:
        return None
    answers = [GoneAnswer(*entry) for entry in gone if _is_gone_entry(entry)]
    names = [*(answer.name for answer in answers), *(n for n in not_gone if _is_name(n))]
    is_complete = len(names) == len(gone) + len(not_gone) <= asked
    if not is_complete or len(set(names)) < len(names):
        return None
    return PassReport(tuple(answers), tuple(not_gone))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_gone_entry(entry: object) -> bool:
    match entry:
        case [name, uid, str(), int() | float() as at, bool()]:
            return _is_name(name) and _is_name(uid) and not isinstance(at, bool)
    return False
