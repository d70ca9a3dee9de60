"""Flags from the file of `--config`: a YAML mapping of flag names to values."""

from ccm.errors import ConfigurationFault
from ccm.settings.declaration import Kind
from ccm.settings.given import Given, Source, nearest
from ccm.settings.strict_yaml import read_yaml
from ccm.settings.values import flags


def read_file(path: str) -> Source:
    """What the file says: a text as on the command line, or a list or mapping of texts."""
    source = Source()

    def fault(problem: str, remedy: str) -> None:
        source.faults.append(ConfigurationFault(f"--config={path}", problem, remedy))

    try:
        content = read_yaml(path) or {}
    except ValueError as error:
        problem, _, remedy = str(error).partition("|")
        fault(problem, remedy)
        return source
    if not isinstance(content, dict):
        fault("is not a mapping", "write lines like 'node-workers: 2'")
        return source
    known = {flag.name: flag for flag in flags() if flag.field != "config"}
    for name, value in content.items():
        if name not in known:
            fault(f"{name!r} is not a flag that a file may set", nearest(name, known))
        elif (texts := _texts(known[name].kind, value)) is None:
            fault(f"{name!r} has a value of another form", "write it as on the command line")
        else:
            source.given[known[name].field] = Given(texts, path)
    return source


def _texts(kind: Kind, value: object) -> tuple[str, ...] | None:
    match value:
        case str():
            return (value,)
        case list() if all(isinstance(item, str) for item in value):
            return tuple(value) if kind.repeats else (",".join(value),)
        case dict() if kind.is_mapping and all(isinstance(item, str) for item in value.values()):
            return tuple(f"{key}={item}" for key, item in value.items())
    return None
