"""`ccm-supervisor start`: read the flags, check the API server, run the supervisor."""

import asyncio
import gc
import logging
import os
import platform
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING

import click

from ccm import __version__
from ccm.cli.reporting import example, fail, say
from ccm.decide.backoff import Backoff
from ccm.directories import default_runtime_dir
from ccm.errors import AccessRefused, ExitCode, NoCredentials
from ccm.settings import (
    KNOWN_FEATURE_GATES,
    CommandLine,
    Flag,
    Origin,
    Reading,
    Settings,
    flags,
    read,
    read_arguments,
)

if TYPE_CHECKING:  # loaded when it runs, so that the help is quick
    from ccm.bus.paths import RuntimePaths
    from ccm.kube.client import Kube
    from ccm.supervisor.starter import WorkerStarter

log = logging.getLogger(__name__)

ACCESS_BACKOFF = Backoff(first=1.0, most=15.0)  # between two tries while access is refused
ATTEMPT_TIMEOUT = 60.0  # seconds that systemd allows for one try

OTHER_VARIABLES = frozenset({"CCM_SUPERVISOR_FLAGS", "CCM_SANDBOX_DIR"})
"""Variables of ours that are no flags: systemd's unit splits this one into a command line."""


class StartCommand(click.Command):
    """A command whose arguments `ccm.settings` reads, all faults at once; click shows the help."""

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
    """A flag of `ccm.settings` in the help of a command."""

    def __init__(self, flag: Flag) -> None:
        super().__init__([flag.label, flag.field])
        self.flag, self.group = flag, flag.group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        note = f"{self.flag.origin}; " if self.flag.origin is Origin.NO_EFFECT else ""
        text = f"{self.flag.help}  [{note}default: {self.flag.default_text}]"
        return self.flag.usage, text


VERSION = click.Option(
    ["--version"],
    metavar="true|raw",
    help="Show the version and exit; vX.Y.Z is accepted and changes nothing.",
)


def _run(words: list[str]) -> None:
    line = read_arguments(words)
    if line.wants_help:
        say(*click.get_current_context().get_help().splitlines())
    elif line.version == "true" and not line.faults:
        say(f"ccm-supervisor {__version__}")
    elif line.version == "raw" and not line.faults:
        say(f"ccm-supervisor {__version__} {platform.python_version()} {platform.platform()}")
    else:
        sys.exit(_start(line, read(line, os.environ)))


start = StartCommand(
    "start",
    params=[*(FlagOption(flag) for flag in flags()), VERSION],
    callback=_run,
    help="Run the supervisor and its workers until stopped.",
    epilog=example("ccm-supervisor start --cloud-provider=aws --kubeconfig=ccm.kubeconfig"),
    context_settings={"max_content_width": 100},
)


def startup_notices(
    reading: Reading, environ: Mapping[str, str]
) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Log records (level, message, fields) about flags that are valid, but not what they seem.

    They are deprecated, have no effect, name feature gates that upstream does not have, or are
    variables that name no flag.
    """
    for flag in flags():
        if flag.field not in reading.raw_values:
            continue
        if flag.deprecated:
            fields = {"flag": flag.label, "remedy": flag.deprecated}
            yield logging.WARNING, "flag is deprecated", fields
        if flag.origin is Origin.NO_EFFECT:
            yield logging.INFO, "flag has no effect", {"flag": flag.label, "why": flag.help}
    if unknown := sorted(reading.settings.feature_gates.keys() - KNOWN_FEATURE_GATES):
        fields = {"flag": "--feature-gates", "gates": ",".join(unknown)}
        yield logging.WARNING, "feature gates are not known", fields
    known = OTHER_VARIABLES | {flag.variable for flag in flags()}
    if unknown := sorted({name for name in environ if name.startswith("CCM_")} - known):
        fields = {"variables": ",".join(unknown)}
        yield logging.WARNING, "environment variables name no flag", fields


def _choose_temporary_directory(runtime_dir: str) -> None:
    """Where none is writable, the runtime directory: dill asks for one as it is imported."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = os.environ["TMPDIR"] = runtime_dir


def _start(line: CommandLine, reading: Reading) -> int:
    _choose_temporary_directory(reading.settings.runtime_dir or default_runtime_dir())
    from ccm.cloud.registry import check_name
    from ccm.log import set_up
    from ccm.processes import keep_memory_private
    from ccm.supervisor.starter import WorkerStarter
    from ccm.worker_names import wanted_workers

    _handle_early_signals()
    gc.disable()  # what is loaded stays
    keep_memory_private()
    settings = reading.settings
    check_name(settings.cloud_provider)
    set_up("supervisor", settings.logging_format, settings.v)
    controllers = sorted({*wanted_workers(settings).values()})
    # What workers need is loaded in another process while this one loads the supervisor.
    with WorkerStarter(settings.cloud_provider, controllers) as starter:
        return asyncio.run(_serve(line, reading, starter))


def _handle_early_signals() -> None:
    """Until the supervisor does it: a stop ends the start, and there is nothing to reload yet.

    Python's handlers hold for PID 1, too, whose signals the kernel drops otherwise. Who started us
    may ignore the end of children, which is inherited.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.OK))
    signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


async def _serve(line: CommandLine, reading: Reading, starter: "WorkerStarter") -> int:
    from ccm.bus.paths import claim

    settings = reading.settings
    paths, lock = claim(settings.runtime_dir or default_runtime_dir())
    os.environ["CCM_RUNTIME_DIR"] = str(paths.directory)  # for what does not read all settings
    with lock:
        for level, message, fields in startup_notices(reading, os.environ):
            log.log(level, message, extra=fields)
        return await _supervise_when_admitted(line, settings, paths, starter)


async def _supervise_when_admitted(
    line: CommandLine, settings: Settings, paths: "RuntimePaths", starter: "WorkerStarter"
) -> int:
    """Supervise as soon as the API server grants access: what it refuses now, it may grant soon.

    Each try reads the credentials again. A signal ends the start.
    """
    loop, start = asyncio.get_running_loop(), asyncio.current_task()
    assert start
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, start.cancel)
    wait = _AccessWait(settings)
    try:
        for failures in count(1):
            try:
                return await _supervise(line, settings, paths, starter, wait)
            except (AccessRefused, NoCredentials) as error:
                pause = ACCESS_BACKOFF.delay(failures, random.random())
                await wait.show(str(error), pause + ATTEMPT_TIMEOUT)
                await asyncio.sleep(pause)
    except asyncio.CancelledError:
        log.info("stopped before it began")
    finally:
        await wait.end()
    return ExitCode.OK


class _AccessWait:
    """Shows that a start waits for access: to systemd, in the log, and as a replica not ready."""

    def __init__(self, settings: Settings) -> None:
        from ccm.supervisor.systemd import SystemdNotifier

        self._settings, self._why = settings, ""
        self._notifier = SystemdNotifier(dict(os.environ))
        self._serving = AsyncExitStack()

    async def show(self, why: str, seconds: float) -> None:
        """The start goes on for so many seconds at least; raises as serving HTTPS does."""
        from ccm.supervisor.serving import serving_health

        if why != self._why:
            log.error("waiting for access to the API server", extra={"why": why})
        is_first, self._why = not self._why, why
        if is_first and self._settings.secure_port:
            health = serving_health(self._settings, lambda: self._why)
            await self._serving.enter_async_context(health)
        self._notifier.waiting(why, seconds)

    async def end(self) -> None:
        """Close the server, so that the supervisor can have the port."""
        await self._serving.aclose()

    async def granted(self) -> None:
        """The API server grants access."""
        if self._why:
            log.info("the API server grants access", extra={"after": self._why})
        await self.end()


async def _about(settings: Settings, kube: "Kube", identity: str) -> dict[str, str]:
    """What the log of a start begins with."""
    from ccm.kube.cluster_identity import read_version

    return {
        "version": __version__,
        "provider": settings.cloud_provider,
        "cluster": settings.cluster_name,
        "configuration": settings.cloud_config or "none",
        "kubernetes": await read_version(kube),
        "identity": identity,
    }


async def _supervise(
    line: CommandLine,
    settings: Settings,
    paths: "RuntimePaths",
    starter: "WorkerStarter",
    wait: _AccessWait,
) -> int:
    from ccm.kube import config
    from ccm.kube.client import Kube
    from ccm.kube.cluster_identity import read_cluster_uid
    from ccm.kube.lease import LeaseClient, new_identity
    from ccm.manifests.rbac import worker_rules
    from ccm.supervisor.accounts import Identities, choose_accounts
    from ccm.supervisor.preflight import check_api_server
    from ccm.supervisor.supervisor import Supervisor

    gc.freeze()
    gc.enable()
    access = await config.load(settings.kubeconfig, settings.master)
    kube = Kube(access, "ccm-supervisor/supervisor", settings.kube_api_in_flight)
    # Its own client, so that a slow list does not hold up a renewal.
    retry = settings.leader_elect_retry_period
    election = Kube(access, "ccm-supervisor/leader-election", in_flight=2, longest_pause=retry)
    lease = LeaseClient(
        election,
        settings.leader_elect_resource_namespace,
        settings.leader_elect_resource_name,
        new_identity(),
        settings.leader_elect_lease_duration,
    )
    try:
        await check_api_server(kube, access.server.url, settings)
        cluster_uid = await read_cluster_uid(kube)
        settings, accounts = await choose_accounts(kube, settings, worker_rules(settings))
        identities = Identities(accounts, cluster_uid)
        await wait.granted()
        log.info("starting", extra=await _about(settings, kube, lease.identity))
        supervisor = Supervisor(settings, paths, kube, lease, identities, starter)
        supervisor.verbosity.reread = lambda: read(line, os.environ).settings
        exit_code = await supervisor.run()
    finally:
        await election.close()
        await kube.close()
    if supervisor.faults:
        fail(supervisor.faults, ExitCode.CONFIGURATION)
    return exit_code
