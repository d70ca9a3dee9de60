"""From what was written to settings: flags > environment > file > default, all faults at once."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ccm.controllers import KNOWN, provided_by, unknown, with_defaults
from ccm.durations import format_duration
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.settings.declaration import Flag
from ccm.settings.flags import Settings, flags
from ccm.settings.raw_values import RawValue, RawValues, suggestion
from ccm.settings.syntax import BOOLEAN, InvalidValue


@dataclass
class CommandLine(RawValues):
    """Flags, and requests that end the command at once."""

    wants_help: bool = False
    version: str = "false"  # or true, raw, vX.Y.Z


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings, and the raw values that were given for them, by field name."""

    settings: Settings
    raw_values: Mapping[str, RawValue]


def read(line: RawValues, environ: Mapping[str, str]) -> Reading:
    """Settings from every source; raises `ConfigurationFaults`."""
    above = _from_environment(environ) | line.values
    config = above["config"].texts[-1] if "config" in above else ""
    file = RawValues()
    if config:
        from ccm.settings.config_file import read_config_file  # imports YAML

        file = read_config_file(config)
    raw_values = file.values | above
    return Reading(_settings(raw_values, [*line.faults, *file.faults]), raw_values)


def _from_environment(environ: Mapping[str, str]) -> dict[str, RawValue]:
    """An empty variable is an empty value, as `--flag=` is."""
    return {
        flag.field: RawValue((environ[flag.variable],), flag.variable)
        for flag in flags()
        if flag.variable in environ
    }


def _settings(
    raw_values: Mapping[str, RawValue], faults: Iterable[ConfigurationFault] = ()
) -> Settings:
    values: dict[str, Any] = {}
    found, invalid = list(faults), set()
    for flag in flags():
        if flag.field in raw_values:
            try:
                values[flag.field] = flag.parse(raw_values[flag.field].texts)
            except InvalidValue as error:
                invalid.add(flag.label)
                found.append(ConfigurationFault(flag.label, error.problem, error.remedy))
    settings = Settings(**values)
    found += [fault for fault in validate(settings) if fault.field not in invalid]
    if found:
        raise ConfigurationFaults([_with_source(fault, raw_values) for fault in found])
    controllers = with_defaults(settings.controllers, settings.cloud_provider)
    return replace(settings, controllers=controllers)


def _with_source(
    fault: ConfigurationFault, raw_values: Mapping[str, RawValue]
) -> ConfigurationFault:
    """The same fault; where the value is not from the command line, with the place to correct."""
    name = fault.field.removeprefix("--").replace("-", "_")
    source = raw_values.get(name, RawValue(())).source
    if not source:
        return fault
    return ConfigurationFault(f"{fault.field} (from {source})", fault.problem, fault.remedy)


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
            remedy = suggestion(f"--{name.lstrip('-')}", (flag.label for flag in known.values()))
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
    if value is None and flag.syntax is BOOLEAN:
        value = "true"
    elif value is None and rest:
        value = rest.popleft()
    if value is None:
        remedy = f"write {flag.label}={flag.syntax.metavar}"
        line.faults.append(ConfigurationFault(flag.label, "has no value", remedy))
        return
    before = line.values.get(flag.field, RawValue(()))
    line.values[flag.field] = RawValue((*before.texts, value))


def validate(settings: Settings) -> Iterator[ConfigurationFault]:
    """What is wrong with settings whose values are valid one by one, each fault once."""
    if not settings.cloud_provider:
        yield ConfigurationFault(
            "--cloud-provider", "cannot be empty", "name one that 'ccm-supervisor providers' lists"
        )
    if names := unknown(settings.controllers, settings.cloud_provider):
        known = ("*", *KNOWN, *provided_by(settings.cloud_provider))
        yield ConfigurationFault(
            "--controllers",
            f'"{names[0]}" is not in the list of known controllers',
            f"choose from: {', '.join(known)}",
        )
    if not 0 <= settings.cloud_reserve < 1:
        yield ConfigurationFault(
            "--cloud-reserve", "is not a share", "use a number from 0, below 1, such as 0.2"
        )
    if not 0 < settings.node_vanish_share <= 1:
        yield ConfigurationFault(
            "--node-vanish-share", "is not a share of nodes", "use a number above 0, at most 1"
        )
    if settings.leader_elect:
        yield from _validate_election(settings)
    if bool(settings.tls_cert_file) != bool(settings.tls_private_key_file):
        missing = "private-key-file" if settings.tls_cert_file else "cert-file"
        yield ConfigurationFault(
            f"--tls-{missing}", "is missing", "a certificate needs its key: give both flags or none"
        )
    if settings.secure_port and settings.webhook_secure_port == settings.secure_port:
        yield ConfigurationFault(
            "--webhook-secure-port", "is --secure-port as well", "use another port, or 0"
        )


def _validate_election(settings: Settings) -> Iterator[ConfigurationFault]:
    retry = settings.leader_elect_retry_period
    deadline = settings.leader_elect_renew_deadline
    if deadline <= 1.2 * retry:
        yield ConfigurationFault(
            "--leader-elect-renew-deadline",
            f"{format_duration(deadline)} is not longer than 1.2 × the retry period",
            f"use more than {format_duration(1.2 * retry)}",
        )
    if settings.leader_elect_lease_duration <= deadline:
        yield ConfigurationFault(
            "--leader-elect-lease-duration",
            "is not longer than --leader-elect-renew-deadline",
            f"use more than {format_duration(deadline)}",
        )
