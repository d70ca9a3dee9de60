"""Sections of a configuration file as dataclasses: a field is a key, and says how it is read.

What is wrong is collected, so that a person sees all of it at once, with the lines.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar, get_origin

from ccm.cloud.config_file import Reading, boolean, positive_duration
from ccm.cloud.ini_file import IniError, IniSection, parse_ini
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.redaction import register_hidden

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Format:
    """What a file calls the key of a field, and what it takes for a switch."""

    spell: Callable[[str], str]
    boolean: Callable[[str], bool] = boolean


INI = Format(lambda name: name.replace("_", "-"))
"""Keys in any case of letters."""


def setting(
    default: T,
    reading: Reading | None = None,
    *,
    name: str = "",
    separator: str = "",
    is_secret: bool = False,
) -> T:
    """A field that is a key: what holds without it, how it is read, and its name in the file.

    Without a reading, the type says how; without a name, the format of the file. A separator is
    that of a list in one text. What is secret is shown nowhere.
    """
    metadata = {"reading": reading, "name": name, "separator": separator, "is_secret": is_secret}
    return field(default=default, repr=not is_secret, metadata=metadata)


def keys_of(kind: type, form: Format = INI) -> list[str]:
    """The keys that a section has."""
    return [key_of(item, form) for item in fields(kind)]


def key_of(item: Field[Any], form: Format) -> str:
    """What a file calls a field."""
    return item.metadata.get("name") or form.spell(item.name)


class Item(str):
    """A text that is one of a list already."""

    __slots__ = ()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known key that is nearest to a word, as a question; empty when none is near."""
    by_lower = {item.lower(): item for item in known}
    near = difflib.get_close_matches(word.lower(), by_lower, 1, 0.75)
    return f"did you mean {by_lower[near[0]]}?" if near else ""


Origin = int | str
"""A line of the file, 0 where it is not known; or what gives a value instead of the file."""
Texts = Sequence[tuple[str | None, Origin]]
"""What a key has, and where; None is a key without `=`."""


class Faults:
    """What is wrong in a file; `origins` are those of the places that are there."""

    def __init__(self, path: str) -> None:
        self.origins: dict[str, Origin] = {}
        self._path = path
        self._faults: dict[str, ConfigurationFault] = {}

    def add(self, place: str, problem: str, remedy: str, origin: Origin = 0) -> None:
        """Record a fault; an empty `place` is the whole file."""
        found = origin or self.origins.get(place) or self.origins.get(place.rpartition(" ")[0], 0)
        if isinstance(found, str):
            fault = ConfigurationFault(found, problem, remedy)
        else:
            fault = fault_in(self._path, place, problem, remedy, found)
        self._faults.setdefault(str(fault), fault)  # of what holds for several, once

    def check(self) -> None:
        """Raise `ConfigurationFaults` if there are any."""
        if self._faults:
            raise ConfigurationFaults([*self._faults.values()])


def fault_in(path: str, place: str, problem: str, remedy: str, line: int = 0) -> ConfigurationFault:
    """A fault in the file of that path, or of `--cloud-config` where it has none."""
    where = f"{path or '--cloud-config'}:{line}" if line else path or "--cloud-config"
    return ConfigurationFault(f"{where} {place}".strip(), problem, remedy)


def read_section(
    kind: type[T],
    values: Mapping[str, Texts],
    place: str,
    faults: Faults,
    form: Format = INI,
) -> T:
    """A section with the defaults of its fields; a blank value is as none, a faulty one as well.

    `values` are by key, in lower case for INI.
    """
    found: dict[str, Any] = {}
    for item in fields(kind):  # type: ignore[arg-type]
        shown = key_of(item, form)
        texts = values.get(shown.lower() if form is INI else shown, ())
        items = list(_items(item, texts, f"{place} {shown}".strip(), faults, form))
        if is_list(item):
            found[item.name] = tuple(items) or item.default
        elif items:
            found[item.name] = items[-1]
    section = kind(**found)
    register_hidden(section)
    return section


def _items(
    field: Field[Any], texts: Texts, place: str, faults: Faults, form: Format
) -> Iterator[Any]:
    """What is read of each text that is not blank."""
    by_type: dict[object, Reading] = {
        bool: (form.boolean, "give true or false"),
        float: (positive_duration, "give a duration as 5s"),
    }
    read, remedy = field.metadata.get("reading") or by_type.get(field.type) or (str, "")
    for text, origin in _given(field, texts, place, faults):
        faults.origins[place] = origin
        try:
            if (item := read(text)) is not None:
                yield item
        except ValueError:
            problem = "has a value with credentials" if "@" in text else f"is {text!r}"
            is_secret = field.metadata.get("is_secret")
            faults.add(place, "has not the form" if is_secret else problem, remedy)


def _given(
    field: Field[Any], texts: Texts, place: str, faults: Faults
) -> Sequence[tuple[str, Origin]]:
    """The texts that are not blank; a key without `=` is true, or empties a list."""
    given: list[tuple[str, Origin]] = []
    for text, origin in texts:
        if text:
            separator = None if isinstance(text, Item) else field.metadata.get("separator")
            items = map(str.strip, text.split(separator)) if separator else (text,)
            given += [(item, origin) for item in items if item]
        elif text is None and field.type is bool:
            given.append(("true", origin))
        elif text is None and not is_list(field):
            faults.add(place, "has no value", "write it as key = value", origin)
        elif text is None or not is_list(field):
            given.clear()  # the last of several counts, and a blank one clears it
    return given


def is_list(item: Field[Any]) -> bool:
    """Whether a field has each of several values."""
    return get_origin(item.type) is tuple


class Sections:
    """The sections of an INI file; `kinds` are their dataclasses by title.

    Those of `named` may have names. What is in no kind is a fault, or is passed to `on_unknown`
    with a hint; what is in `unused` is known and without effect: keys by title, none for all.
    """

    def __init__(
        self,
        content: bytes,
        path: str,
        kinds: Mapping[str, type],
        *,
        named: Collection[str] = (),
        unused: Mapping[str, Collection[str]] | None = None,
        on_unknown: Callable[[str, str, int, str], None] | None = None,
    ) -> None:
        self.faults, self.spell = Faults(path), INI.spell
        self._kinds, self._named, self._unused = kinds, named, unused or {}
        self._on_unknown = on_unknown
        self._values: dict[tuple[str, str], dict[str, Texts]] = {}
        titles = {title.lower(): title for title in kinds}
        self.places: dict[str, str] = {}  # of all sections of the file, by title in lower case
        for (title, name), section in self._parse(content).items():
            self.places[title] = place = place_of(section.title, name)
            self.faults.origins[place] = section.line
            if title in titles and (not name or titles[title] in named):
                self._values[titles[title], name] = self._values_of(titles[title], section)
            elif title not in map(str.lower, self._unused):
                self._add_unknown_section(section)

    def place(self, kind: type, name: str = "") -> str:
        """Where a section of this kind is."""
        return place_of(title_of(kind, self._kinds), name)

    def read(self, kind: type[T], name: str = "") -> T:
        """The section of this kind, with all defaults where the file has none."""
        values = self._values.get((title_of(kind, self._kinds), name), {})
        return read_section(kind, values, self.place(kind, name), self.faults)

    def read_named(self, kind: type[T]) -> dict[str, T]:
        """All sections of this kind, by name."""
        title = title_of(kind, self._kinds)
        return {name: self.read(kind, name) for item, name in self._values if item == title}

    def has(self, title: str, key: str) -> bool:
        """Whether a section without a name gives this key a value."""
        return any(text != "" for text, _ in self._values.get((title, ""), {}).get(key.lower(), ()))

    def add(self, title: str, key: str, texts: Sequence[str], origin: str) -> None:
        """What a key has if the file does not give it a value."""
        if not self.has(title, key):
            values = self._values.setdefault((title, ""), {})
            values[key.lower()] = [(text, origin) for text in texts]

    def _parse(self, content: bytes) -> Mapping[tuple[str, str], IniSection]:
        try:
            return parse_ini(content)
        except IniError as error:
            known = {key for kind in self._kinds.values() for key in keys_of(kind)}
            hint = did_you_mean(error.word, known) if error.word else ""
            remedy = f"{hint} {error.remedy}".strip()
            self.faults.add("", error.problem, remedy, error.line)
            self.faults.check()
            raise

    def _values_of(self, title: str, section: IniSection) -> dict[str, Texts]:
        """Texts of each key; a key that is not known is a fault."""
        place = place_of(title, section.name)
        self.faults.origins[place] = section.line
        known = keys_of(self._kinds[title])
        found: dict[str, list[tuple[str | None, Origin]]] = {}
        lines: dict[str, int] = {}
        for entry in section.entries:
            found.setdefault(entry.key, []).append((entry.value, entry.line))
            lines.setdefault(entry.key, entry.line)
        for key in sorted(found.keys() - {*map(str.lower, (*known, *self._unused.get(title, ())))}):
            self._add_unknown(place, key, lines[key], known)
        return {**found}

    def _add_unknown(self, place: str, key: str, line: int, known: Sequence[str]) -> None:
        hint = did_you_mean(key, known)
        if self._on_unknown:
            self._on_unknown(place, key, line, hint)
        else:
            add_unknown_key(self.faults, f"{place} {key}", line, known)

    def _add_unknown_section(self, section: IniSection) -> None:
        place = place_of(section.title, section.name)
        if self._on_unknown:
            for entry in section.entries:
                self._on_unknown(
                    place, entry.key, entry.line, did_you_mean(section.title, self._kinds)
                )
            return
        known = ", ".join(f"[{title}]" for title in self._kinds)
        self.faults.add(place, "is not a section of this file", f"use {known}", section.line)


def add_unknown_key(faults: Faults, place: str, line: int, known: Sequence[str]) -> None:
    """Record that a key is not one of those which are known."""
    hint = did_you_mean(place.rpartition(" ")[2], known)
    remedy = f"{hint} Else remove it" if hint else f"remove it or use one of {', '.join(known)}"
    faults.add(place, "is not a key of this file", remedy, line)


def title_of(kind: type, kinds: Mapping[str, type]) -> str:
    """The title of the sections of a kind."""
    return next(title for title, item in kinds.items() if item is kind)


def place_of(title: str, name: str) -> str:
    """A section as it stands in the file."""
    return f'[{title} "{name}"]' if name else f"[{title}]"
