"""The --cloud-config file of a provider: what is wrong in it is collected and reported at once."""

import os
import re
import ssl
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import yaml

from ccm.durations import parse_duration
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.model.objects import mapping, text

T = TypeVar("T")

READABLE = "give the path of a file that this user may read"
"""The remedy for what `why_unreadable` says."""

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class ConfigReader:
    """Reads one key of a section at a time; a faulty value is recorded and reads as its default.

    `values` are by key in lower case. Whatever is none of `keys` is a fault from the start.
    """

    def __init__(
        self, path: str, section: str, keys: Collection[str], values: Mapping[str, str]
    ) -> None:
        self.faults: list[ConfigurationFault] = []
        self._path, self._section, self._values = path, section, values
        for key in sorted(values.keys() - {key.lower() for key in keys}):
            remedy = f"remove it or use one of {', '.join(keys)}"
            self.add(key, "is not a key of this file", remedy)

    def text(self, key: str, default: str = "") -> str:
        """The value as it is."""
        return self._values.get(key.lower(), default)

    def value(self, key: str, read: Callable[[str], T], default: T, remedy: str) -> T:
        """What `read` makes of the value; its ValueError is a fault. Credentials are not shown."""
        value = self._values.get(key.lower())
        if value is None:
            return default
        try:
            return read(value)
        except ValueError:
            self.add(
                key, "has a value with credentials" if "@" in value else f"is {value!r}", remedy
            )
            return default

    def add(self, key: str, problem: str, remedy: str) -> None:
        """Record a fault of a key of the section."""
        self.add_at(f"[{self._section}] {key}", problem, remedy)

    def add_at(self, place: str, problem: str, remedy: str) -> None:
        """Record a fault somewhere in the file; an empty `place` is all of it."""
        self.faults.append(fault_in(self._path, place, problem, remedy))

    def check(self) -> None:
        """Raise `ConfigurationFaults` if there are any."""
        if self.faults:
            raise ConfigurationFaults(self.faults)


def fault_in(path: str, place: str, problem: str, remedy: str) -> ConfigurationFault:
    """A fault in the file of that path, or of `--cloud-config` where it has none."""
    return ConfigurationFault(f"{path or '--cloud-config'} {place}".strip(), problem, remedy)


def why_unreadable(file: str) -> str:
    """Why this user cannot read a file; empty when he can.

    The path is not shown: somebody may have written a secret in its place.
    """
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return "is no file"
        with open(file, "rb"):
            return ""
    except (OSError, ValueError) as wrong:
        return f"cannot be read: {getattr(wrong, 'strerror', '') or wrong}"


def why_no_certificate(file: str) -> str:
    """Why nobody can be believed by a file, as the problem of a fault; empty when one can."""
    if why := why_unreadable(file):
        return f"is {file!r}, which {why}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        return f"is {file!r}, which holds no certificate in PEM"
    return ""


def one_of(choices: Collection[str]) -> Callable[[str], str]:
    """A `read` that takes these values only."""

    def read(value: str) -> str:
        if value not in choices:
            raise ValueError(value)
        return value

    return read


def number_within(minimum: int, maximum: int) -> Callable[[str], int]:
    """A `read` that takes whole numbers from `minimum` to `maximum`."""

    def read(value: str) -> int:
        if not value.isdecimal() or not minimum <= int(value) <= maximum:
            raise ValueError(value)
        return int(value)

    return read


def boolean(value: str) -> bool:
    """A `read` of what Go's gcfg takes for a switch, in any case of letters."""
    return one_of(_TRUE + _FALSE)(value.lower()) in _TRUE


def positive_duration(value: str) -> float:
    """A `read` of seconds, as in `15s`; more than none."""
    if (seconds := parse_duration(value)) <= 0:
        raise ValueError(value)
    return seconds


Reading = tuple[Callable[[str], Any], str]
"""How a value is read, and what to give where its ValueError says that it is none."""
_BY_TYPE: Mapping[object, Reading] = {
    bool: (boolean, "give true or false"),
    float: (positive_duration, "give a duration as 5s"),
}


class SectionReader(ConfigReader):
    """Reads a section into its dataclass, whose fields are the keys with `_` for `-`.

    How a value is read is said by `readings` for its key, or else by the type of the field: a tuple
    has each of several values.
    """

    def __init__(
        self, path: str, section: str, keys: Collection[str], values: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(path, section, keys, {key: some[-1] for key, some in values.items()})
        self._lists = values

    def read(self, kind: type[T], readings: Mapping[str, Reading]) -> T:
        """The section, with the defaults of its fields."""
        found: dict[str, Any] = {}
        for one in fields(kind):  # type: ignore[arg-type]
            key = one.name.replace("_", "-")
            reading = readings.get(key) or _BY_TYPE.get(one.type)
            if key not in self._lists:
                continue
            if one.type not in (str, bool, float, int):
                found[one.name] = tuple(self._items(key, reading))
            elif reading:
                found[one.name] = self.value(key, reading[0], one.default, reading[1])
            else:
                found[one.name] = self.text(key)
        return kind(**found)

    def _items(self, key: str, reading: Reading | None) -> Iterator[Any]:
        read, remedy = reading or (str, "")
        for item in self._lists[key]:
            try:
                yield read(item)
            except ValueError:
                self.add(key, f"is {item!r}", remedy)


def keys_of(kind: type) -> list[str]:
    """The keys that a section's dataclass has."""
    return [one.name.replace("_", "-") for one in fields(kind)]


# YAML: mappings in mappings, whose values have types of their own.


class YamlReader:
    """Reads a value of a mapping at a time; a faulty one is recorded and reads as none.

    `place` is where the mapping is in the file. Credentials are not shown.
    """

    def __init__(self, path: str, first_key: str) -> None:
        self._faults, self._first_key = ConfigReader(path, "", (), {}), first_key
        self.fault, self.check = self._faults.add_at, self._faults.check

    def parse(self, content: bytes) -> Mapping[str, Any]:
        """The document, an empty one as well; `ConfigurationFaults` for what is none."""
        remedy = f"start it with {self._first_key}:"
        try:
            found = yaml.safe_load(content) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as wrong:
            mark = getattr(wrong, "problem_mark", None)
            where = f": line {mark.line + 1} is not understood" if mark else ""
            self.fault("", f"is not YAML{where}", remedy)
            self.check()
            raise
        if not isinstance(found, dict):
            self.fault("", "is no mapping", remedy)
        return mapping(found)

    def mapping(self, place: str, value: object, keys: Collection[str] = ()) -> Mapping[str, Any]:
        """A mapping of these keys; of any where none are given."""
        if value is not None and not isinstance(value, dict):
            self.fault(place, "is no mapping", f"give it {', '.join(keys) or 'names'}")
        found = mapping(value)
        for key in sorted(map(str, found.keys() - set(keys))) if keys else ():
            remedy = f"remove it or use one of {', '.join(keys)}"
            self.fault(f"{place} {key}".strip(), "is not a key of this file", remedy)
        return found

    def text(self, place: str, raw: Mapping[str, Any], key: str) -> str:
        """A text; digits without quotes are one."""
        value = raw.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if value is not None and not isinstance(value, str):
            self.fault(f"{place} {key}", "is no text", "put it into quotes")
        return text(value)

    def words(
        self,
        place: str,
        raw: Mapping[str, Any],
        key: str,
        reading: tuple[Callable[[str], object], str] = (str, "give a list of texts"),
    ) -> tuple[str, ...]:
        """A list of texts, or one with commas; for a wrong one, `reading` raises ValueError or is
        falsy, and gives the remedy.
        """
        value, (is_right, remedy) = raw.get(key), reading
        some = value.split(",") if isinstance(value, str) else [] if value is None else value
        if not isinstance(some, list) or not all(isinstance(one, str) for one in some):
            self.fault(f"{place} {key}", "is no list of texts", remedy)
            return ()
        found = tuple(one.strip() for one in some if one.strip())
        for one in found:
            try:
                if is_right(one):
                    continue
            except ValueError:
                pass
            shown = "has a value with credentials" if "@" in one else f"has {one!r}"
            self.fault(f"{place} {key}", shown, remedy)
        return found

    def boolean(self, place: str, raw: Mapping[str, Any], key: str) -> bool:
        value = raw.get(key)
        if value not in (None, True, False):
            self.fault(f"{place} {key}", f"is {value!r}", "give true or false")
        return value is True

    def choice(self, place: str, raw: Mapping[str, Any], key: str, choices: Sequence[str]) -> str:
        """One of these; the first is the default."""
        value = raw.get(key, choices[0])
        if value not in choices:
            self.fault(f"{place} {key}", f"is {value!r}", f"use {', '.join(choices)}")
        return text(value)


# The format of Go's gcfg: sections with names, repeated keys, quoted values.

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?")
_ESCAPES = {r"\"": '"', r"\\": "\\", r"\n": "\n", r"\t": "\t"}


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One `key = value`. Names of sections and keys are in lower case, `name` is as written."""

    section: str
    name: str  # of `[section "name"]`
    key: str
    value: str  # `true` for a key without `=`


def parse_gcfg(content: bytes, path: str) -> list[ConfigEntry]:
    """All entries in their order; `ConfigurationFaults` names the first line not understood.

    Its text is left out, since it may be a secret.
    """
    try:
        return list(_entries(content.decode()))
    except ValueError as wrong:
        detail = "" if isinstance(wrong, UnicodeDecodeError) else f": {wrong}"
        problem, remedy = f"is not a cloud-config file{detail}", "start it with [Global]"
        raise ConfigurationFaults([fault_in(path, "", problem, remedy)]) from wrong


def _entries(text: str) -> Iterator[ConfigEntry]:
    section, name = "", ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw).strip()
        if match := _SECTION.fullmatch(line):
            section, name = match[1].lower(), match[2] or ""
        elif (match := _KEY.fullmatch(line)) and section:
            value = "true" if match[2] is None else _unquote(match[2], number)
            yield ConfigEntry(section, name, match[1].lower(), value)
        elif line:
            raise ValueError(f"line {number} is not understood")


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


def _unquote(value: str, line: int) -> str:
    if not value.startswith('"') and '"' not in value:
        return value
    if not re.fullmatch(r'"(?:[^"\\]|\\["\\nt])*"', value):
        raise ValueError(f"line {line} is not understood")
    return re.sub(r'\\["\\nt]', lambda escape: _ESCAPES[escape.group()], value[1:-1])
