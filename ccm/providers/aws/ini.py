"""The file format of upstream's cloud-config: sections, names of sections, repeated keys."""

import re
from dataclasses import dataclass

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?")
_ESCAPES = {r"\"": '"', r"\\": "\\", r"\n": "\n", r"\t": "\t"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key = value`. Names of sections and keys are in lower case, `name` is as written."""

    section: str
    name: str  # of `[section "name"]`
    key: str
    value: str | None  # None for a key without `=`, which stands for a boolean that is true
    line: int


class NotUnderstood(Exception):
    """A line is nothing that this format has. What stands there may be a secret: it is not told."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not understood")


def read_entries(text: str) -> list[Entry]:
    """All entries in their order; raises `NotUnderstood`."""
    section, name = "", ""
    entries: list[Entry] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw).strip()
        if not line:
            continue
        if match := _SECTION.fullmatch(line):
            section, name = match[1].lower(), match[2] or ""
        elif (match := _KEY.fullmatch(line)) and section:
            value = None if match[2] is None else _plain(match[2], number)
            entries.append(Entry(section, name, match[1].lower(), value, number))
        else:
            raise NotUnderstood(number)
    return entries


def _without_comment(line: str) -> str:
    """The line up to a `;` or `#` that is not inside quotes."""
    is_quoted = is_escaped = False
    for at, char in enumerate(line):
        if char in ";#" and not is_quoted:
            return line[:at]
        if char == '"' and not is_escaped:
            is_quoted = not is_quoted
        is_escaped = char == "\\" and not is_escaped
    return line


def _plain(value: str, line: int) -> str:
    """The value without its quotes."""
    if not value.startswith('"'):
        if '"' in value:
            raise NotUnderstood(line)
        return value
    if not re.fullmatch(r'"(?:[^"\\]|\\["\\nt])*"', value):
        raise NotUnderstood(line)
    return re.sub(r'\\["\\nt]', lambda escape: _ESCAPES[escape.group()], value[1:-1])
