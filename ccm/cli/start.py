"""`ccm-supervisor start`: read the flags, check what can be checked, run the supervisor."""

import asyncio
import sys
from dataclasses import MISSING, Field
from typing import TYPE_CHECKING, Any

import click

from ccm.errors import ConfigurationFault, ConfigurationFaults, ExitCode, Unreachable
from ccm.settings import Flag, Settings, flags, parse

if TYPE_CHECKING:
    from ccm.kube.client import Kube
    from ccm.kube.lease import LeaseFile


class GroupedCommand(click.Command):
    """A command whose `--help` shows the flags under the headings of `ccm.settings`."""

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
    """One flag of `ccm.settings`, kept as text: all faults are found and reported together."""

    def __init__(self, name: str, field_name: str, group: str, **kwargs: Any) -> None:
        names = [f"--{name}"] if len(name) > 1 else [f"-{name}", f"--{name}"]
        super().__init__([*names, field_name], **kwargs)
        self.group = group


def _options() -> list[click.Parameter]:
    return [
        FlagOption(
            name,
            item.name,
            flag.group,
            metavar=flag.metavar,
            help=f"{flag.help}  [default: {_shown(item, flag)}]",
            # A boolean may stand alone: --leader-elect means --leader-elect=true.
            **({"is_flag": False, "flag_value": "true"} if flag.metavar == "BOOL" else {}),
        )
        for name, item, flag in flags()
    ]


def _shown(item: "Field[Any]", flag: Flag) -> str:
    default: Any = {} if item.default is MISSING else item.default
    return flag.show(default) or "none"


def _run(**texts: str | None) -> None:
    sys.exit(start_supervisor(texts))


start = GroupedCommand(
    "start",
    params=_options(),
    callback=_run,
    help="Run the supervisor and its workers until told to stop.",
    context_settings={
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "max_content_width": 100,
    },
)


def start_supervisor(texts: dict[str, str | None]) -> int:
    """Run until the end; configuration faults become one line each on standard error, exit 78."""
    try:
        settings = parse(texts)
        return asyncio.run(_serve(settings))
    except ConfigurationFaults as faults:
        return _complain([str(fault) for fault in faults.faults])
    except ConfigurationFault as fault:
        return _complain([str(fault)])
    except Unreachable as error:
        _complain([str(error)])
        return ExitCode.FAILED


def _complain(lines: list[str]) -> ExitCode:
    for line in lines:
        click.echo(f"ccm-supervisor: {line}", err=True)
    return ExitCode.CONFIGURATION


def _lease(settings: Settings, kube: "Kube") -> "LeaseFile":
    from ccm.kube.lease import LeaseFile, new_identity

    return LeaseFile(
        kube,
        settings.leader_elect_resource_namespace,
        settings.leader_elect_resource_name,
        new_identity(),
        settings.leader_elect_lease_duration,
    )


async def _serve(settings: Settings) -> int:
    from ccm.bus.paths import claim
    from ccm.cloud.registry import check_name
    from ccm.kube import config
    from ccm.kube.client import Kube
    from ccm.log import set_up
    from ccm.supervisor.loop import Supervisor
    from ccm.supervisor.preflight import check_api_server

    check_name(settings.cloud_provider)
    configuration = await config.load(config.Source(settings.kubeconfig, settings.master))
    paths, lock = claim(settings.runtime_dir)
    with lock:
        set_up("supervisor", settings.logging_format, settings.v)
        kube = Kube(configuration, "ccm-supervisor/supervisor", settings.kube_api_in_flight)
        # Of its own, so that a busy API server's answer to a list does not hold up a renewal.
        election = Kube(configuration, "ccm-supervisor/leader-election", in_flight=2)
        try:
            await check_api_server(kube, configuration.host, settings)
            supervisor = Supervisor(settings, paths, kube, _lease(settings, election))
            outcome = await supervisor.run()
        finally:
            await election.close()
            await kube.close()
    if supervisor.faults:
        return _complain(supervisor.faults)
    return outcome
