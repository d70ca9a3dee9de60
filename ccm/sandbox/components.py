"""The directory and the processes of a sandbox: API server, cloud and supervisor."""

import asyncio
import os
import shlex
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from ccm.directories import check_private
from ccm.errors import ConfigurationFault
from ccm.processes import die_with_parent

PROVIDER, CLUSTER_CIDR = "simulated", "10.240.0.0/12"
START_TIMEOUT = 60.0  # seconds in which a component has to say where it listens
CLOUD_PAGE = 100  # machines in one answer
CLOUD_READ_RATE = 50  # calls a second
STOP_TIMEOUT = 10.0  # seconds from SIGTERM to SIGKILL


def default_directory() -> str:
    """One sandbox per user, so that a second terminal finds it by itself."""
    if given := os.environ.get("CCM_SANDBOX_DIR"):
        return given
    base = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
    return os.path.join(base, f"ccm-sandbox-{os.geteuid()}")


class SandboxPaths:
    """The files in the directory of one sandbox."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.cloud_config = directory / "cloud.conf"
        self.runtime = directory / "run"
        self.endpoints = directory / "sandbox.json"
        self.environment = directory / "env"

    def log(self, component: str) -> Path:
        return self.directory / f"{component}.log"

    def url_file(self, component: str) -> Path:
        return self.directory / f"{component}.url"


@dataclass(frozen=True, slots=True)
class SandboxEndpoints:
    """How other commands reach a running sandbox."""

    pid: int
    kubernetes_url: str
    cloud_url: str
    page_url: str


def write_environment(paths: SandboxPaths) -> None:
    """A file that a shell reads, so that commands in it are about this sandbox."""
    values = {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), "$PATH")),
        "KUBECONFIG": shlex.quote(str(paths.kubeconfig)),
        "CCM_RUNTIME_DIR": shlex.quote(str(paths.runtime)),
        "CCM_SANDBOX_DIR": shlex.quote(str(paths.directory)),
        "CCM_CLOUD_PROVIDER": PROVIDER,
        "CCM_CLOUD_CONFIG": shlex.quote(str(paths.cloud_config)),
        "CCM_CLUSTER_CIDR": CLUSTER_CIDR,
    }
    paths.environment.write_text("".join(f"export {k}={v}\n" for k, v in values.items()))


def find_sandbox(directory: str) -> tuple[SandboxPaths, SandboxEndpoints]:
    """The sandbox that runs in `directory`; raises `ConfigurationFault` when none does."""
    paths = SandboxPaths(Path(directory).absolute())
    try:
        check_private(paths.directory)  # its kubeconfig may name commands to run
        endpoints = SandboxEndpoints(**orjson.loads(paths.endpoints.read_bytes()))
        os.kill(endpoints.pid, 0)
    except (OSError, TypeError, orjson.JSONDecodeError) as error:
        raise ConfigurationFault(
            "--directory",
            f"no sandbox of this user runs in {directory}",
            "start one with 'ccm-supervisor sandbox', or name the directory of the one that runs",
        ) from error
    return paths, endpoints


class Component:
    """One running process; its output goes to a log file in the sandbox's directory."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name, self.process, self.log = name, process, log

    @classmethod
    async def start(cls, name: str, paths: SandboxPaths, arguments: Sequence[str]) -> "Component":
        log = paths.log(name)
        with open(log, "wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # or it would import what lies in the current directory
                "-m",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C goes to the sandbox, which stops in order
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
            )
        return cls(name, process, log)

    async def url(self, file: Path) -> str:
        """The address that the component writes to `file` once it listens."""
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT
        while not file.exists():
            self.check()
            if asyncio.get_running_loop().time() > deadline:
                raise self._failure(f"did not answer within {START_TIMEOUT:g} s")
            await asyncio.sleep(0.02)
        return file.read_text().strip()

    def check(self) -> None:
        """Raise `ConfigurationFault` with the end of the log when the component has ended."""
        if self.process.returncode is not None:
            raise self._failure(f"ended with code {self.process.returncode}")

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), STOP_TIMEOUT)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    def _failure(self, problem: str) -> ConfigurationFault:
        tail = " | ".join(self.log.read_text(errors="replace").splitlines()[-3:])
        return ConfigurationFault(f"sandbox {self.name}", f"{problem}: {tail}", f"see {self.log}")


async def start_kubernetes(paths: SandboxPaths) -> tuple[Component, str]:
    """The embedded API server and its URL; its kubeconfig lies in the sandbox's directory."""
    file = paths.url_file("kubernetes")
    arguments = [f"--url-file={file}", f"--kubeconfig={paths.kubeconfig}"]
    component = await Component.start("kubernetes", paths, ["ccm.sandbox.kubernetes", *arguments])
    return component, await component.url(file)


async def start_cloud(paths: SandboxPaths) -> tuple[Component, str]:
    """The simulated cloud and its URL; the provider's configuration is written beside it."""
    from ccm.sandbox.cloud.service import TOKEN

    file = paths.url_file("cloud")
    arguments = [f"--url-file={file}", f"--page={CLOUD_PAGE}", f"--read-rate={CLOUD_READ_RATE}"]
    component = await Component.start("cloud", paths, ["ccm.sandbox.cloud", *arguments])
    url = await component.url(file)
    paths.cloud_config.write_text(
        f"[Global]\nurl = {url}\ntoken = {TOKEN}\n"
        f"page-size = {CLOUD_PAGE}\nread-rate = {CLOUD_READ_RATE}\n"
    )
    return component, url


def reserve_port() -> socket.socket:
    """A free port of loopback, which only a process of ours that shares it can take, too."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held


async def start_supervisor(paths: SandboxPaths, node_workers: int, port: int) -> Component:
    """The supervisor, with the flags that anyone would give it, and quick to delete Nodes."""
    arguments = [
        f"--cloud-provider={PROVIDER}",
        f"--cloud-config={paths.cloud_config}",
        f"--kubeconfig={paths.kubeconfig}",
        f"--runtime-dir={paths.runtime}",
        f"--node-workers={node_workers}",
        f"--cluster-cidr={CLUSTER_CIDR}",
        "--node-deletion-confirmation-period=5s",  # someone is waiting to see it
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing",
    ]
    return await Component.start("supervisor", paths, ["ccm.cli.main", "start", *arguments])
