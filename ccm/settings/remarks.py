"""What an operator should know about flags that are right, once, in the log at the start."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ccm.settings.declaration import Origin
from ccm.settings.environment import unknown_variables
from ccm.settings.given import Given
from ccm.settings.values import flags


@dataclass(frozen=True, slots=True)
class Remark:
    """One log record."""

    level: int
    message: str
    facts: Mapping[str, str]


def remarks(given: Mapping[str, Given], environ: Mapping[str, str]) -> Iterator[Remark]:
    """About flags that are deprecated or do nothing here, and variables that are no flags."""
    for flag in flags():
        if flag.field not in given:
            continue
        name = f"--{flag.name}"
        if flag.deprecated:
            facts = {"flag": name, "remedy": flag.deprecated}
            yield Remark(logging.WARNING, "flag is deprecated", facts)
        if flag.origin is Origin.NO_EFFECT:
            yield Remark(logging.INFO, "flag has no effect", {"flag": name, "why": flag.help})
    if strangers := unknown_variables(environ):
        facts = {"variables": ",".join(strangers)}
        yield Remark(logging.WARNING, "environment variables name no flag", facts)
