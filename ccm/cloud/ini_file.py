"""INI as Go's gcfg 1.2.3 reads it: the sections of a text, or the line that makes it none."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SPACE = r"[ \t\r]*+"
_WORD = r"[^\W\d_](?:[^\W_]|-)*+"
_IN_QUOTES = r'"(?:[^"\\\n]|\\["\\nt])*+'
_VALUE = rf'(?:[^\n;#"\\]|\\\r?["\n]|{_IN_QUOTES}")*+'
_END = rf"{_SPACE}(?:[;#][^\n]*+)?(?:\n|\Z)"

_BLANK = re.compile(_END)
_SECTION = re.compile(
    rf'{_SPACE}\[{_SPACE}({_WORD}){_SPACE}(?:("(?:[^"\\\n]|\\["\\])++"){_SPACE})?\]{_END}'
)
_KEY = re.compile(rf"{_SPACE}({_WORD}){_SPACE}(?:={_SPACE}({_VALUE}))?{_END}")
_BROKEN_VALUE = re.compile(rf"{_SPACE}{_WORD}{_SPACE}={_SPACE}{_VALUE}(?:(\\)|{_IN_QUOTES}(\\)?)")
_ESCAPE = re.compile(r'\\(.)|"', re.DOTALL)
_MEANING = {"n": "\n", "t": "\t", "\n": ""}


class IniError(ValueError):
    """A text that is not INI. Nothing of the text is shown, since it may be a secret."""

    def __init__(self, line: int, problem: str, remedy: str, word: str = "") -> None:
        super().__init__(problem)
        self.line, self.problem, self.remedy = line, problem, remedy
        self.word = word  # what may be a misspelt key: to compare with keys, not to show


@dataclass(frozen=True, slots=True)
class IniEntry:
    """One `key = value`, the key in lower case; the value is None without `=`."""

    key: str
    value: str | None = field(repr=False)
    line: int


@dataclass(frozen=True, slots=True)
class IniSection:
    """What `[title]` or `[title "name"]` has, which may be nothing."""

    title: str
    name: str
    line: int
    entries: list[IniEntry] = field(default_factory=list)


def parse_ini(content: bytes) -> dict[tuple[str, str], IniSection]:
    """The sections by title in lower case and name, in their order; raises `IniError`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise IniError(line, "is not UTF-8", "save the file as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise IniError(line, "has a NUL character", "remove it")
    sections: dict[tuple[str, str], IniSection] = {}
    section: IniSection | None = None
    for line, match in _lines(text):
        if match.re is _SECTION:
            title, name = match[1], _unquoted(match[2] or "")
            section = sections.setdefault((title.lower(), name), IniSection(title, name, line))
        elif section is None:
            raise IniError(line, "is before the first section", "start the file with [Global]")
        else:
            value = (
                None if match[2] is None else _unquoted(match[2].rstrip(" \t\r").replace("\r", ""))
            )
            section.entries.append(IniEntry(match[1].lower(), value, line))
    return sections


def _lines(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Each header and entry, with the number of the line that it starts in."""
    at, line = 0, 1
    while at < len(text):
        match = _BLANK.match(text, at)
        if not match:
            match = _SECTION.match(text, at) or _KEY.match(text, at)
            if not match:
                raise _error(text, at, line)
            yield line, match
        at, line = match.end(), line + match[0].count("\n")


def _unquoted(value: str) -> str:
    """Without the quotes, which may be around any part, and with what escapes stand for."""
    return _ESCAPE.sub(lambda match: _MEANING.get(match[1], match[1] or ""), value)


def _error(text: str, at: int, line: int) -> IniError:
    """What is wrong in the line that starts at `at`."""
    if broken := _BROKEN_VALUE.match(text, at):
        line += broken[0].count("\n")
        if broken[1]:
            remedy = r"put the value into quotes, and write \\ for each backslash in it"
            return IniError(line, "has a backslash outside quotes", remedy)
        if broken[2]:
            return IniError(line, "has a backslash inside quotes", r"write \\ for each backslash")
        return IniError(line, "has a quote that is not closed", r"close it, or write \" for one")
    rest = text[at:].partition("\n")[0].strip()
    if rest.startswith("["):
        return IniError(line, "is not a section", 'write it as [Section] or [Section "name"]')
    remedy = "write it as key = value; a key has letters, digits and dashes"
    return IniError(line, "is not a section or a key", remedy, re.split(r"[\s=:]", rest)[0])
