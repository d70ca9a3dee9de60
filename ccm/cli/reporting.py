"""How a command ends that cannot do its work: lines on standard error, and an exit code."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from ccm.errors import (
    CannotListen,
    CloudError,
    ConfigurationFault,
    ConfigurationFaults,
    ExitCode,
    KubernetesError,
    Unreachable,
)


def fail(lines: Iterable[object], code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """Print each line to standard error and exit with `code`."""
    for line in lines:
        click.echo(f"ccm-supervisor: {line}", err=True)
    raise SystemExit(code)


@contextmanager
def reported() -> Iterator[None]:
    """What is raised inside and has a remedy becomes lines and an exit code, not a traceback."""
    try:
        yield
    except ConfigurationFaults as faults:
        fail(faults.faults, ExitCode.CONFIGURATION)
    except ConfigurationFault as fault:
        fail([fault], ExitCode.CONFIGURATION)
    except (CannotListen, CloudError, KubernetesError, Unreachable) as error:
        fail([error])
