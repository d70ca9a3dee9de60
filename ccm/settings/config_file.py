"""Flags from the YAML file of `--config`, and YAML that is read strictly."""

from pathlib import Path
from typing import Any

import yaml

from ccm.errors import ConfigurationFault
from ccm.settings.flags import flags
from ccm.settings.reading import RawValue, RawValues, suggestion
from ccm.settings.syntax import InvalidValue, Syntax

NULLS = ("~", "null", "Null", "NULL")


def read_config_file(path: str) -> RawValues:
    """A mapping of flag names to texts as on the command line, or to lists or mappings of texts."""
    raw = RawValues()

    def fault(problem: str, remedy: str) -> None:
        raw.faults.append(ConfigurationFault(f"--config={path}", problem, remedy))

    try:
        content = read_yaml(path) or {}
        if not isinstance(content, dict):
            raise InvalidValue("is not a mapping", "write lines like 'node-workers: 2'")
    except InvalidValue as error:
        fault(error.problem, error.remedy)
        return raw
    known = {flag.name: flag for flag in flags() if flag.field != "config"}
    for name, value in content.items():
        if name not in known:
            fault(f"{name!r} is not a flag that a file may set", suggestion(name, known))
        elif (texts := _texts(known[name].syntax, value)) is None:
            fault(f"{name!r} has a value of another form", "write it as on the command line")
        else:
            raw.values[known[name].field] = RawValue(texts, path)
    return raw


def _texts(syntax: Syntax, value: object) -> tuple[str, ...] | None:
    match value:
        case str():
            return (value,)
        case list() if all(isinstance(item, str) for item in value):
            return tuple(value) if syntax.is_repeatable else (",".join(value),)
        case dict() if syntax.is_mapping and all(isinstance(item, str) for item in value.values()):
            return tuple(f"{key}={item}" for key, item in value.items())
    return None


class _StrictLoader(yaml.BaseLoader):
    """Every scalar is the text that was written, and no key stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            is_text = isinstance(key, yaml.ScalarNode)
            if not is_text or key.value in seen:
                problem = f"{key.value!r} is there twice" if is_text else "a key is not a text"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=True)

    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        is_null = node.style is None and node.value in NULLS
        return "" if is_null else super().construct_scalar(node)


def read_yaml(path: str) -> Any:
    """The file's one document, scalars as text; raises `InvalidValue`."""
    try:
        return yaml.load(Path(path).read_bytes(), _StrictLoader)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise InvalidValue(problem, "give a file that this user may read") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        what = getattr(error, "problem", None) or "it is not text"
        raise InvalidValue(f"is not understood: {what}{where}", "correct the file") from error
