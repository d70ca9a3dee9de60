"""The processes of a sandbox: API server, cloud and supervisor, each started as a user would."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ccm.errors import ConfigurationFault
from ccm.processes import die_with_parent
from ccm.sandbox.place import Place

START_TIMEOUT = 20.0  # seconds in which a part has to say where it listens
STOP_TIMEOUT = 10.0


class Part:
    """One running process; its output goes to a log file in the sandbox's directory."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name, self.process, self.log = name, process, log

    @classmethod
    async def start(cls, name: str, place: Place, arguments: Sequence[str]) -> "Part":
        log = place.log(name)
        with open(log, "wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
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
        """The address that the part writes to `file` once it listens."""
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT
        while not file.exists():
            self.check()
            if asyncio.get_running_loop().time() > deadline:
                raise self._fault(f"said nothing within {START_TIMEOUT:g} s")
            await asyncio.sleep(0.02)
        return file.read_text().strip()

    def check(self) -> None:
        """Raise `ConfigurationFault` with the end of the log when the part has ended."""
        if self.process.returncode is not None:
            raise self._fault(f"ended with code {self.process.returncode}")

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), STOP_TIMEOUT)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    def _fault(self, problem: str) -> ConfigurationFault:
        tail = " | ".join(self.log.read_text(errors="replace").splitlines()[-3:])
        return ConfigurationFault(f"sandbox {self.name}", f"{problem}: {tail}", f"see {self.log}")


async def start_kubernetes(place: Place) -> tuple[Part, str]:
    """The embedded API server and its URL; its kubeconfig lies in the sandbox's directory."""
    file = place.url_file("kubernetes")
    arguments = ["ccm.sandbox.kubernetes", "--url-file", str(file)]
    part = await Part.start(
        "kubernetes", place, [*arguments, "--kubeconfig", str(place.kubeconfig)]
    )
    return part, await part.url(file)


async def start_cloud(place: Place, page: int, read_rate: float) -> tuple[Part, str]:
    """The simulated cloud and its URL; the provider's configuration is written beside it."""
    from ccm.sandbox.cloud.service import Tokens

    file = place.url_file("cloud")
    arguments = ["ccm.sandbox.cloud", "--url-file", str(file), "--page", str(page)]
    part = await Part.start("cloud", place, [*arguments, "--read-rate", f"{read_rate:g}"])
    url = await part.url(file)
    place.cloud_config.write_text(
        f"[Global]\nurl = {url}\ntoken = {Tokens().full}\n"
        f"page-size = {page}\nread-rate = {read_rate:g}\n"
    )
    return part, url


async def start_supervisor(place: Place, node_workers: int) -> Part:
    """The supervisor, with the flags that anyone would give it."""
    return await Part.start(
        "supervisor",
        place,
        [
            "ccm.cli.main",
            "start",
            "--cloud-provider=simulated",
            f"--cloud-config={place.cloud_config}",
            f"--kubeconfig={place.kubeconfig}",
            f"--runtime-dir={place.runtime}",
            f"--node-workers={node_workers}",
            "--cluster-cidr=10.240.0.0/12",
            "--secure-port=0",
        ],
    )
