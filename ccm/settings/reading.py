"""From what was written to settings: flags > environment > file > default, all faults at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.settings.checks import check
from ccm.settings.environment import read_environment
from ccm.settings.given import Given, Source
from ccm.settings.values import Settings, flags


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings, and what somebody wrote to make them so."""

    settings: Settings
    given: Mapping[str, Given]


def read(line: Source, environ: Mapping[str, str]) -> Reading:
    """Settings from every source; raises `ConfigurationFaults`."""
    above = read_environment(environ).given | line.given
    config = above["config"].texts[-1] if "config" in above else ""
    file = _file(config) if config else Source()
    given = file.given | above
    return Reading(_settings(given, [*line.faults, *file.faults]), given)


def parse(texts: Mapping[str, str | None]) -> Settings:
    """Settings from flag texts by field name (None = not given); raises `ConfigurationFaults`."""
    return _settings({name: Given((text,)) for name, text in texts.items() if text is not None})


def _file(path: str) -> Source:
    from ccm.settings.file import read_file  # YAML is loaded for those who use it

    return read_file(path)


def _settings(given: Mapping[str, Given], faults: Iterable[ConfigurationFault] = ()) -> Settings:
    values: dict[str, Any] = {}
    told, broken = list(faults), set()
    for flag in flags():
        if flag.field in given:
            try:
                values[flag.field] = flag.read(given[flag.field].texts)
            except ValueError as error:
                problem, _, remedy = str(error).partition("|")
                broken.add(flag.label)
                told.append(ConfigurationFault(flag.label, problem, remedy))
    settings = Settings(**values)
    told += [fault for fault in check(settings) if fault.field not in broken]
    if told:
        raise ConfigurationFaults([_located(fault, given) for fault in told])
    return settings


def _located(fault: ConfigurationFault, given: Mapping[str, Given]) -> ConfigurationFault:
    """The same fault; where the value is not from the command line, with the place to correct."""
    where = given.get(fault.field.removeprefix("--").replace("-", "_"), Given(())).where
    if not where:
        return fault
    return ConfigurationFault(f"{fault.field} (from {where})", fault.problem, fault.remedy)
