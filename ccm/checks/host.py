"""Are the directories usable and not in use; may processes open as many files as needed."""

import asyncio
import fcntl
import os
import resource
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ccm.bus.control import NotRunning, ask
from ccm.bus.paths import SOCKET_PATH_LIMIT, RuntimePaths
from ccm.checks.context import CheckContext, once
from ccm.checks.finding import Finding, failed, ok, warning
from ccm.directories import check_trusted, default_runtime_dir
from ccm.model.conform import conform
from ccm.model.objects import Json
from ccm.model.status import Status
from ccm.settings import Settings
from ccm.supervisor.deletion_state import read_state
from ccm.supervisor.https.listener import MAX_CONNECTIONS, MAX_HANDSHAKES
from ccm.worker_names import wanted_workers

STATUS_TIMEOUT = 2.0  # for a supervisor to answer
PRIVATE_MODE = 0o700
FILES_PER_PROCESS = 64  # interpreter, event loop, bus, log, connections to the cloud
FILES_PER_WORKER = 6  # in the supervisor: sentinel, pipes, its connection on the bus


@dataclass(frozen=True, slots=True)
class ObservedRuntime:
    """The runtime directory as we find it.

    `holder` is the process that has the lock; `status` what it answers, None for nothing.
    """

    directory: Path
    holder: str = ""
    status: Status | None = None

    @property
    def is_running(self) -> bool:
        """Whether a supervisor works here, as far as it says."""
        return bool(self.status)

    @property
    def is_leader(self) -> bool:
        return self.status is not None and self.status["leader"]["is_leader"]


@once
async def probe_runtime(context: CheckContext) -> ObservedRuntime:
    """The runtime directory, and whether a supervisor runs in it."""
    directory = context.settings.runtime_dir or default_runtime_dir()
    return await asyncio.to_thread(observe_runtime, directory)


def observe_runtime(directory: str) -> ObservedRuntime:
    """The same, blocking; makes and changes nothing."""
    paths = RuntimePaths(Path(directory).absolute())
    # What another user made there may be anything; a start refuses it.
    is_ours = os.geteuid() == 0 or not _distrust(paths.directory)
    holder = _lock_holder(paths.lock) if is_ours else ""
    answer = _status(paths.control) if holder else None
    return ObservedRuntime(paths.directory, holder, conform(Status, answer) if answer else None)


def _lock_holder(lock: Path) -> str:
    """The process that holds the lock; empty when none does, or none can be found."""
    try:
        with open(lock, encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return ""
    except BlockingIOError:
        return lock.read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        return ""


def _status(control: Path) -> Json:
    try:
        return ask(control, {"command": "status"}, STATUS_TIMEOUT)
    except NotRunning:
        return {}


async def check_directories(context: CheckContext) -> Iterable[Finding]:
    """Whether the directories can be used, and whether someone uses them."""
    runtime, state_dir = await probe_runtime(context), context.settings.state_dir
    directory = runtime.directory
    found = [*_of_runtime(runtime), *unusable_directory("--runtime-dir", directory, False)]
    if state_dir:
        directory = Path(state_dir).absolute()
        found += unusable_directory("--state-dir", directory)
    found = found or [*_of_deletions(directory / "deletions.json")]
    return found or [ok(f"{runtime.directory} {_use(runtime)}")]


def _of_deletions(path: Path) -> Iterator[Finding]:
    try:
        read_state(path)
    except (OSError, ValueError) as error:
        yield failed(
            f"deletions would be frozen, their state cannot be read: {path}: {error}",
            "repair or remove that file; removed, it freezes nothing",
        )


def _use(runtime: ObservedRuntime) -> str:
    if runtime.is_running:
        return "is in use by a supervisor that answers"
    return "is free" if runtime.directory.exists() else "can be created"


def _of_runtime(runtime: ObservedRuntime) -> Iterator[Finding]:
    directory = runtime.directory
    if len(os.fsencode(RuntimePaths(directory).control)) > SOCKET_PATH_LIMIT:
        yield failed(
            f"--runtime-dir: {directory} is too long for a socket in it",
            "choose a shorter path",
        )
    if runtime.holder and not runtime.is_running:
        yield failed(
            f"--runtime-dir: {directory} is in use by a running supervisor "
            f"(pid {runtime.holder}) that does not answer",
            "stop that one first, or choose another directory",
        )
    if os.path.islink(directory) or not os.path.isdir(directory):  # false where we may not look
        return
    info, uid = directory.stat(), os.geteuid()
    if info.st_uid != uid:
        yield failed(
            f"--runtime-dir: {directory} belongs to user {info.st_uid}, and we are user {uid}",
            "run this as the user of 'start', or choose another directory",
        )
    elif (mode := stat.S_IMODE(info.st_mode)) & ~PRIVATE_MODE:
        yield warning(
            f"--runtime-dir: {directory} has mode {mode:04o}: others can look in",
            f"chmod 0700 {directory}; a start does that by itself",
        )


def unusable_directory(flag: str, path: Path, allow_link: bool = True) -> Iterator[Finding]:
    """Why nothing can be written to `path`, or to the nearest directory above it that exists.

    A link that leads nowhere, or is not allowed, is no directory.
    """
    found = next(each for each in (path, *path.parents) if os.path.lexists(each))
    is_followed = found.exists() and (allow_link or found != path)
    mode = found.stat(follow_symlinks=is_followed).st_mode
    problem = ""
    if not stat.S_ISDIR(mode):
        problem = f"{found} is not a directory"
    elif not os.access(found, os.W_OK | os.X_OK):
        problem = f"{found} cannot be written (mode {stat.filemode(mode)})"
    else:  # of a runtime directory, a start says itself whose it is
        problem = _distrust(found if allow_link or found != path else found.parent)
    if problem:
        yield failed(
            f"{flag}: {path} cannot be used: {problem}",
            "choose a directory that this user may write",
        )


def _distrust(directory: Path) -> str:
    try:
        check_trusted(directory)
    except OSError as error:
        return str(error.strerror)
    return ""


# open-files: the limit of this shell; a unit of systemd has its own (`LimitNOFILE=`).


async def check_open_files(context: CheckContext) -> Iterable[Finding]:
    """Whether the connections fit below the soft limit, which a start would inherit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [evaluate_open_files(limit, context.settings)]


def evaluate_open_files(limit: int, settings: Settings) -> Finding:
    """Whether the supervisor, which has most of them, may open as many files as it needs."""
    need = FILES_PER_PROCESS + FILES_PER_WORKER * len(wanted_workers(settings))
    need += settings.kube_api_in_flight
    if settings.secure_port:
        need += MAX_CONNECTIONS + MAX_HANDSHAKES
    message = f"{limit} files may be open, and about {need} may be needed"
    if limit not in (resource.RLIM_INFINITY, -1) and limit < need:
        return failed(message, f"raise the limit: ulimit -n {max(1024, need)}, or LimitNOFILE=")
    return ok(message)
