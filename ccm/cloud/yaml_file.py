"""YAML files of clouds: their mappings as dataclasses, and what is wrong in them."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from ccm.cloud.config_file import yaml_boolean
from ccm.cloud.sections import (
    Faults,
    Format,
    Item,
    Origin,
    add_unknown_key,
    is_list,
    key_of,
    keys_of,
    read_section,
    title_of,
)
from ccm.yaml_document import YamlError, YamlMapping, parse_yaml

log = logging.getLogger(__name__)

T = TypeVar("T")


class YamlReader:
    """The mappings of a YAML file, each read into a dataclass; what is wrong is collected.

    `spell` is what the file calls a field; `merges` is as for `parse_yaml`.
    """

    def __init__(
        self, path: str, spell: Callable[[str], str] = str, *, merges: bool = False
    ) -> None:
        self.faults = Faults(path)
        self._format, self._merges = Format(spell, yaml_boolean), merges

    def parse(self, content: bytes, first_key: str) -> YamlMapping:
        """The document, which is a mapping; `ConfigurationFaults` for what is not YAML."""
        try:
            found = parse_yaml(content, self._on_duplicate, merges=self._merges)
        except YamlError as error:
            self.faults.add("", error.problem, error.remedy, error.line)
            self.faults.check()
            raise
        if found is not None and not isinstance(found, YamlMapping):
            self.faults.add("", "is not a mapping", f"start it with {first_key}:", 1)
        return found if isinstance(found, YamlMapping) else YamlMapping()

    def _on_duplicate(self, key: str, line: int, first: int) -> None:
        if self._merges:
            extra = {"key": key, "line": line, "first": first}
            log.warning("a key stands twice in the cloud configuration", extra=extra)
        else:
            self.faults.add(key, f"stands twice, in line {first} too", "keep one of them", line)

    def mapping(self, parent: YamlMapping, key: str, place: str = "") -> YamlMapping:
        """What the parent, which is at this place, has at a key: a mapping, or nothing."""
        place, value = f"{place} {key}".strip(), parent.get(key)
        self.faults.origins[place] = parent.lines.get(key, 0)
        return self.as_mapping(value, place)

    def as_mapping(self, value: Any, place: str) -> YamlMapping:
        """The value of a place, which has to be a mapping where there is one."""
        if isinstance(value, YamlMapping):
            return value
        if value:
            self.faults.add(place, "is not a mapping", "write its keys below it, indented")
        return YamlMapping()

    def read(self, kind: type[T], raw: YamlMapping, place: str, more: Collection[str] = ()) -> T:
        """A mapping as this kind; `more` are keys that have no field."""
        self.check_keys(raw, place, [*keys_of(kind, self._format), *more])
        values = {}
        for field in fields(kind):  # type: ignore[arg-type]
            key = key_of(field, self._format)
            if (value := raw.get(key)) is not None:
                values[key] = self._texts(value, f"{place} {key}", raw.lines[key], is_list(field))
        return read_section(kind, values, place, self.faults, self._format)

    def _texts(
        self, value: Any, place: str, line: int, has_several: bool
    ) -> list[tuple[str | None, Origin]]:
        if isinstance(value, str):
            return [(value, line)]
        if has_several and isinstance(value, list):
            some = [item for item in value if item is not None]
            if all(isinstance(item, str) for item in some):
                return [(Item(item), line) for item in some]
        problem = "is not a list of texts" if has_several else "is not a text"
        self.faults.add(place, problem, "write the value behind the key", line)
        return []

    def check_keys(self, raw: YamlMapping, place: str, known: Collection[str]) -> None:
        """Record each key that is not one of these."""
        for key in sorted(raw.keys() - set(known)):
            add_unknown_key(self.faults, f"{place} {key}".strip(), raw.lines[key], list(known))


class YamlSections:
    """A file whose mappings are what sections are in INI, with the methods of `Sections`.

    Those of `named` are mappings of sections by name; `unused` are keys without effect, anywhere.
    """

    def __init__(
        self,
        content: bytes,
        path: str,
        kinds: Mapping[str, type],
        spell: Callable[[str], str],
        *,
        named: Collection[str] = (),
        unused: Collection[str] = (),
        merges: bool = False,
    ) -> None:
        self._reader = reader = YamlReader(path, spell, merges=merges)
        self.faults, self.spell = reader.faults, spell
        self._kinds, self._unused = kinds, unused
        root = reader.parse(content, next(iter(kinds)))
        reader.check_keys(root, "", [*kinds, *unused])
        self.places = {title.lower(): title for title in root}
        self._raw = {(title, ""): reader.mapping(root, title) for title in kinds}
        for title in named:
            entries = self._raw.pop((title, ""))
            self._raw |= {
                (title, entry): reader.mapping(entries, entry, title) for entry in entries
            }

    def place(self, kind: type, name: str = "") -> str:
        """Where a section of this kind is."""
        return f"{title_of(kind, self._kinds)} {name}".strip()

    def read(self, kind: type[T], name: str = "") -> T:
        """The section of this kind, with all defaults where the file has none."""
        raw = self._raw[title_of(kind, self._kinds), name]
        return self._reader.read(kind, raw, self.place(kind, name), self._unused)

    def read_named(self, kind: type[T]) -> dict[str, T]:
        """All sections of this kind, by name."""
        title = title_of(kind, self._kinds)
        return {name: self.read(kind, name) for item, name in self._raw if item == title}
