"""`ccm-supervisor start`: read the flags, check what can be checked, run the supervisor."""

import asyncio
import logging
import os
import platform
import sys
from typing import TYPE_CHECKING

import click

from ccm import __version__
from ccm.errors import (
    CannotListen,
    ConfigurationFault,
    ConfigurationFaults,
    ExitCode,
    Unreachable,
)
from ccm.settings import (
    CommandLine,
    Flag,
    Origin,
    Reading,
    Settings,
    default_runtime_dir,
    flags,
    read,
    read_arguments,
)
from ccm.settings.remarks import remarks

if TYPE_CHECKING:
    from ccm.kube.client import Kube
    from ccm.kube.lease import LeaseClient

log = logging.getLogger(__name__)


class StartCommand(click.Command):
    """Its words are read by `ccm.settings`, all faults at once; click shows the help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # the shell completes a flag's name
            return super().parse_args(ctx, args)
        ctx.params["words"] = args
        return []

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record:
                groups.setdefault(getattr(option, "group", "Other"), []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


class FlagOption(click.Option):
    """How one flag of `ccm.settings` looks in the help."""

    def __init__(self, flag: Flag) -> None:
        super().__init__([flag.label, flag.field])
        self.flag, self.group = flag, flag.group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        note = f"{self.flag.origin}; " if self.flag.origin is Origin.NO_EFFECT else ""
        text = f"{self.flag.help}  [{note}default: {self.flag.shown_default}]"
        return self.flag.syntax, text


VERSION = click.Option(
    ["--version"],
    metavar="true|raw",
    help="Show the version and exit; vX.Y.Z is accepted and changes nothing.",
)


def _run(words: list[str]) -> None:
    line = read_arguments(words)
    if line.wants_help:
        click.echo(click.get_current_context().get_help())
    elif line.version == "true" and not line.faults:
        click.echo(f"ccm-supervisor {__version__}")
    elif line.version == "raw" and not line.faults:
        click.echo(
            f"ccm-supervisor {__version__} {platform.python_version()} {platform.platform()}"
        )
    else:
        sys.exit(start_supervisor(line))


start = StartCommand(
    "start",
    params=[*(FlagOption(flag) for flag in flags()), VERSION],
    callback=_run,
    help="Run the supervisor and its workers until told to stop.",
    context_settings={"max_content_width": 100},
)


def start_supervisor(line: CommandLine) -> int:
    """Run until the end; configuration faults become one line each on standard error, exit 78."""
    try:
        return asyncio.run(_serve(line, read(line, os.environ)))
    except ConfigurationFaults as faults:
        return _complain([str(fault) for fault in faults.faults])
    except ConfigurationFault as fault:
        return _complain([str(fault)])
    except (CannotListen, Unreachable) as error:
        _complain([str(error)])
        return ExitCode.FAILED


def _complain(lines: list[str]) -> ExitCode:
    for line in lines:
        click.echo(f"ccm-supervisor: {line}", err=True)
    return ExitCode.CONFIGURATION


def _lease(settings: Settings, kube: "Kube") -> "LeaseClient":
    from ccm.kube.lease import LeaseClient, new_identity

    return LeaseClient(
        kube,
        settings.leader_elect_resource_namespace,
        settings.leader_elect_resource_name,
        new_identity(),
        settings.leader_elect_lease_duration,
    )


def _remark(reading: Reading) -> None:
    for remark in remarks(reading.given, os.environ):
        log.log(remark.level, remark.message, extra=dict(remark.facts))


async def _serve(line: CommandLine, reading: Reading) -> int:
    from ccm.bus.paths import claim
    from ccm.cloud.registry import check_name
    from ccm.kube import config
    from ccm.kube.client import Kube
    from ccm.log import set_up
    from ccm.supervisor.loop import Supervisor
    from ccm.supervisor.preflight import check_api_server

    settings = reading.settings
    check_name(settings.cloud_provider)
    access = await config.load(config.Source(settings.kubeconfig, settings.master))
    paths, lock = claim(settings.runtime_dir or default_runtime_dir())
    with lock:
        set_up("supervisor", settings.logging_format, settings.v)
        _remark(reading)
        kube = Kube(access, "ccm-supervisor/supervisor", settings.kube_api_in_flight)
        # Of its own, so that a busy API server's answer to a list does not hold up a renewal.
        election = Kube(access, "ccm-supervisor/leader-election", in_flight=2)
        try:
            await check_api_server(kube, access.server.url, settings)
            supervisor = Supervisor(settings, paths, kube, _lease(settings, election))
            supervisor.verbosity.reread = lambda: read(line, os.environ).settings
            outcome = await supervisor.run()
        finally:
            await election.close()
            await kube.close()
    if supervisor.faults:
        return _complain(supervisor.faults)
    return outcome
