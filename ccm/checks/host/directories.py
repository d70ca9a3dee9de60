"""Whether the runtime and the state directory can be used, and whether somebody uses them."""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccm.bus.paths import SOCKET_PATH_LIMIT
from ccm.checks.check import Check
from ccm.checks.finding import Finding, failed, ok, warning
from ccm.checks.look.runtime import DirectorySeen, RuntimeSeen, look_at_directory
from ccm.checks.site import Site
from ccm.supervisor.deletion_state import read_state

OURS_ALONE = 0o700


@dataclass(frozen=True, slots=True)
class Facts:
    """`state` is None where the runtime directory is the state directory, too."""

    runtime: RuntimeSeen
    state: DirectorySeen | None
    trouble: str  # with the file of deletions


async def look(site: Site) -> Facts:
    runtime, given = await site.runtime(), site.settings.state_dir
    state = look_at_directory(Path(given).absolute()) if given else None
    directory = state.path if state else runtime.directory.path
    return Facts(runtime, state, _trouble(directory / "deletions.json"))


def _trouble(path: Path) -> str:
    try:
        read_state(path)
    except (OSError, ValueError) as error:
        return f"{path}: {error}"
    return ""


def judge(facts: Facts) -> Iterator[Finding]:
    found = [*_of_runtime(facts.runtime), *_of_directory("--runtime-dir", facts.runtime.directory)]
    if facts.state:
        found += _of_directory("--state-dir", facts.state)
    if facts.trouble and not found:
        found.append(
            failed(
                f"deletions would be frozen, their state cannot be read: {facts.trouble}",
                "mend or remove that file; removed, it freezes nothing",
            )
        )
    yield from found or [ok(_fine(facts.runtime))]


def _fine(runtime: RuntimeSeen) -> str:
    if runtime.is_running:
        return f"{runtime.directory.path} is in use by a supervisor that answers"
    return f"{runtime.directory.path} " + ("is free" if runtime.directory.exists else "can be made")


def _of_runtime(runtime: RuntimeSeen) -> Iterator[Finding]:
    directory = runtime.directory
    if runtime.socket_bytes > SOCKET_PATH_LIMIT:
        yield failed(
            f"--runtime-dir: {directory.path} is too long for a socket in it",
            "choose a shorter path",
        )
    if runtime.holder and not runtime.is_running:
        yield failed(
            f"--runtime-dir: {directory.path} is in use by a running supervisor "
            f"(pid {runtime.holder}) that does not answer",
            "stop that one first, or choose another directory",
        )
    if not (directory.exists and directory.is_directory):
        return
    if directory.owner != runtime.user:
        yield failed(
            f"--runtime-dir: {directory.path} belongs to user {directory.owner}, "
            f"and we are user {runtime.user}",
            "run this as the user of 'start', or choose another directory",
        )
    elif directory.mode & ~OURS_ALONE:
        yield warning(
            f"--runtime-dir: {directory.path} has mode {directory.mode:04o}: others can look in",
            f"chmod 0700 {directory.path}; a start does that by itself",
        )


def _of_directory(flag: str, seen: DirectorySeen) -> Iterator[Finding]:
    problem = ""
    if not seen.is_directory:
        problem = f"{seen.found} is not a directory"
    elif not seen.is_writable:
        problem = f"{seen.found} cannot be written (mode {stat.filemode(seen.mode)})"
    if problem:
        yield failed(
            f"{flag}: {seen.path} cannot be used: {problem}",
            "choose a directory that this user may write",
        )


CHECK = Check("directories", look, judge)
