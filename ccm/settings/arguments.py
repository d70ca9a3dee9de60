"""The words of a command line, read by upstream's rules; values stay text."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ccm.errors import ConfigurationFault
from ccm.settings.declaration import BOOLEAN, Flag
from ccm.settings.given import Given, Source, nearest
from ccm.settings.values import flags


@dataclass
class CommandLine(Source):
    """Flags, and wishes that end the command at once."""

    wants_help: bool = False
    version: str = "false"  # or true, raw, vX.Y.Z


def read_arguments(words: Sequence[str]) -> CommandLine:
    """`--name=value`, `--name value`, `-v4`, a boolean alone; `_` is `-` in names."""
    line, known = CommandLine(), {flag.name: flag for flag in flags()}
    rest = deque(words)
    while rest:
        word = rest.popleft()
        name, separator, value = _split(word)
        if not name:
            remedy = "a value is joined to its flag by '=', as in --v=4"
            line.faults.append(ConfigurationFault(repr(word), "is not a flag", remedy))
        elif name in ("help", "-h"):
            line.wants_help = True
        elif name == "version":
            _take_version(line, value if separator else "true")
        elif name in known:
            _take(line, known[name], value if separator else None, rest)
        else:
            written = word.partition("=")[0]
            remedy = nearest(f"--{name.lstrip('-')}", (flag.label for flag in known.values()))
            line.faults.append(ConfigurationFault(written, "is not a known flag", remedy))
            if not separator and rest and not rest[0].startswith("-"):
                rest.popleft()  # its value, most likely
    return line


def _split(word: str) -> tuple[str, str, str]:
    """Name, what separates it from its value, and that; no name when the word is not a flag."""
    if word.startswith("--"):
        name, separator, value = word[2:].partition("=")
        return name.replace("_", "-"), separator, value
    if word.startswith("-v"):
        return "v", word[2:3], word[2:].removeprefix("=")
    return word.partition("=") if word.startswith("-") and word != "-" else ("", "", "")


def _take_version(line: CommandLine, value: str) -> None:
    if re.fullmatch(r"true|false|raw|v\d+\.\d+\.\d+.*", value):
        line.version = value
    else:
        remedy = "write --version or --version=raw"
        line.faults.append(ConfigurationFault("--version", f"{value!r} is not known", remedy))


def _take(line: CommandLine, flag: Flag, value: str | None, rest: deque[str]) -> None:
    if value is None and flag.kind is BOOLEAN:
        value = "true"
    elif value is None and rest:
        value = rest.popleft()
    if value is None:
        remedy = f"write --{flag.name}={flag.kind.metavar}"
        line.faults.append(ConfigurationFault(f"--{flag.name}", "has no value", remedy))
        return
    before = line.given.get(flag.field, Given(()))
    line.given[flag.field] = Given((*before.texts, value))
