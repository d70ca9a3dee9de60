"""Flags from the YAML file of `--config`, and YAML that is read strictly."""

from pathlib import Path
from typing import Any

from ccm.directories import read_bounded
from ccm.errors import ConfigurationFault
from ccm.settings.flags import flags
from ccm.settings.raw_values import RawValue, RawValues, suggestion
from ccm.settings.syntax import InvalidValue, Syntax
from ccm.yaml_document import YamlError, parse_yaml


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
        case None:
            return ("",)
        case str():
            return (value,)
        case list() if all(isinstance(item, str) for item in value):
            return tuple(value) if syntax.is_repeatable else (",".join(value),)
        case dict() if syntax.is_mapping and all(isinstance(item, str) for item in value.values()):
            return tuple(f"{key}={item}" for key, item in value.items())
    return None


def read_yaml(path: str) -> Any:
    """The file's first document (see `parse_yaml`); raises `InvalidValue`."""

    def refuse(key: str, line: int, first: int) -> None:
        raise YamlError(line, f"has {key!r} twice, in line {first} too", "keep one of them")

    try:
        return parse_yaml(read_bounded(Path(path)), refuse)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise InvalidValue(problem, "give a file that this user may read") from error
    except YamlError as error:
        where = f" (line {error.line})" if error.line else ""
        raise InvalidValue(f"{error.problem}{where}", error.remedy) from error
