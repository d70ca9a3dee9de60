"""YAML files of providers: mappings in mappings, whose values have types of their own."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import yaml

from ccm.cloud.sections import Faults
from ccm.model.objects import mapping, text


class YamlReader:
    """Reads a value of a mapping at a time; a faulty one is recorded and reads as none.

    `place` is where the mapping is in the file. Credentials are not shown.
    """

    def __init__(self, path: str, first_key: str) -> None:
        faults, self._first_key = Faults(path), first_key
        self.fault, self.check = faults.add, faults.check

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
