"""A real systemd with the shipped unit: a little machine in namespaces of its own on this host."""

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.deadlines import timeout
from tests.support.kube.child import Nursery
from tests.support.namespaces import ROOT, in_root, why_no_namespaces
from tests.support.running import wait_for

BOOT = Path(__file__).with_name("boot.sh")
UNIT = "ccm-supervisor.service"
ETC = "/etc/ccm-supervisor"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/test.conf"
SEES = ("--mount", "--pid", "--uts", "--ipc", "--cgroup", "--net", "--root", "--wd")


def why_not() -> str:
    """What is missing on this host to boot a machine; empty when nothing is."""
    if not Path("/lib/systemd/systemd").exists():
        return "systemd is not installed: apt-get install systemd"
    if " cgroup2 " not in Path("/proc/mounts").read_text():
        return "this kernel has no cgroup2 mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
    return why_no_namespaces("make", "util-linux make")


class Machine:
    """It shares network and programs with this host, and nothing else; its end leaves no trace.

    `enter` is a command that runs another one in the network which the machine is to have instead.
    """

    def __init__(self, directory: Path, enter: Sequence[str] = ()) -> None:
        self._directory, self._enter = directory, enter
        self._nursery = Nursery()

    def __enter__(self) -> Self:
        # A child is executed by its path alone, so env looks for what enters a network.
        command = ("/usr/bin/env", *self._enter, *in_root(BOOT, self._directory))
        boot = self._nursery.start("machine", command, self._directory)
        try:
            wait_for("the machine boots", lambda: self._is_up() or not boot.is_running())
            assert boot.is_running(), boot.log_tail()
            self.run("make", "-f", "/opt/source/systemd/install.mk", "install-systemd")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if pid := self._read("pid"):
            subprocess.run((*ROOT, "kill", "-KILL", pid), check=False)
        self._nursery.close()
        if group := self._read("cgroup"):
            wait_for("the control groups are gone", lambda: _has_removed(group))

    def run(self, *command: str, text: str = "") -> str:
        """What `command` prints in the machine; it has to succeed."""
        done = self.attempt(*command, text=text)
        assert done.returncode == 0, f"{command}: {done.stderr}{self.journal()}"
        return done.stdout

    def attempt(self, *command: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        """The same for a command that may fail."""
        enter = (*ROOT, "nsenter", "--target", self._read("pid"), *SEES)
        return subprocess.run(
            (*enter, *command),
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout(90),
            check=False,
        )

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", 'mkdir -p "${0%/*}" && cat > "$0"', path, text=text)

    def adapt(self, *lines: str) -> None:
        """Change the service by a drop-in, as `systemctl edit` would."""
        self.write(DROP_IN, "\n".join(("[Service]", *lines, "")))
        self.run("systemctl", "daemon-reload")

    def show(self, name: str) -> str:
        """A property of the service."""
        return self.run("systemctl", "show", "--property", name, "--value", UNIT).strip()

    def journal(self) -> str:
        """The last that systemd and the service have said."""
        return self.attempt("journalctl", "--no-pager", "--lines=200").stdout

    def _is_up(self) -> bool:
        if not self._read("pid"):
            return False
        done = self.attempt("systemctl", "is-system-running")
        return done.stdout.strip() in ("running", "degraded")

    def _read(self, name: str) -> str:
        path = self._directory / name
        return path.read_text().strip() if path.exists() else ""


def _has_removed(group: str) -> bool:
    """Remove empty control groups; those of processes that are ending still are not empty."""
    remove = (*ROOT, "find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")
    subprocess.run(remove, capture_output=True, check=False)
    return not Path(group).exists()


def use_flags(machine: Machine, *flags: str) -> None:
    """These flags, and a port: the machine has this host's network, where others may use ours."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    content = f'CCM_SUPERVISOR_FLAGS="{" ".join(flags)}"\nCCM_SECURE_PORT={port}\n'
    machine.write(f"{ETC}/ccm-supervisor.env", content)
