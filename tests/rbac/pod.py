"""A rendered Pod, run without a container runtime, and within the limits that it asks for."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.kube.child import Nursery
from tests.proc.running import Json, wait_for

SOURCE = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("pod.sh")
ROOT = () if os.geteuid() == 0 else ("sudo", "-n")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def why_not() -> str:
    """What is missing on this host to run a Pod; empty when nothing is."""
    for program in ("unshare", "nsenter", "setpriv"):
        if not shutil.which(program):
            return f"{program} is not installed: apt-get install util-linux"
    try:
        subprocess.run((*ROOT, "unshare", "--mount", "--pid", "--fork", "true"), check=True)
    except (OSError, subprocess.CalledProcessError):
        return (
            "namespaces cannot be made here: run as root, with sudo, or in a privileged container"
        )
    return ""


class Pod:
    """The container of a Pod's `spec`; `volumes` has the files of each that is no emptyDir."""

    def __init__(
        self,
        directory: Path,
        spec: Json,
        environment: Mapping[str, str],
        volumes: Mapping[str, Path],
    ) -> None:
        self._directory, self._nursery = directory, Nursery()
        (self._container,) = spec["containers"]
        assert spec["hostNetwork"]
        assert self._container["securityContext"]["readOnlyRootFilesystem"]
        self._user = str(spec["securityContext"]["runAsUser"])
        given = {entry["name"]: entry["value"] for entry in self._container["env"]}
        path = {"PATH": "/opt/ccm-supervisor/bin:/usr/bin:/bin"}
        self._environment = [f"{k}={v}" for k, v in {**path, **given, **environment}.items()]
        mounts = {each["name"]: each["mountPath"] for each in self._container["volumeMounts"]}
        mounts["account"] = ACCOUNT
        lines = (f"{place} {volumes.get(name, '')}\n" for name, place in mounts.items())
        (directory / "volumes").write_text("".join(lines))

    def __enter__(self) -> Self:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        places = (self._directory, sys.base_prefix, python, sysconfig.get_path("purelib"), SOURCE)
        words = (*self._container["command"], *self._container["args"])
        command = ("env", "-i", *self._environment, *words)
        script = ("/usr/bin/env", *ROOT, "sh", str(SCRIPT), *map(str, places), self._user)
        self._child = self._nursery.start("pod", (*script, *command), self._directory)
        wait_for("the Pod runs", lambda: self._pid() or not self._child.is_running())
        assert self._child.is_running(), self.log()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error:
            error.add_note(self.log())
        if self._child.is_running():
            self._send("KILL")
        self._nursery.close()

    def run(self, *command: str) -> str:
        """What `kubectl exec` prints; the command has to succeed."""
        enter = ("nsenter", "--target", self._pid(), "--mount", "--pid", "--root", "--wd")
        user = ("setpriv", "--reuid", self._user, "--regid", self._user, "--clear-groups")
        words = (*ROOT, *enter, *user, "env", "-i", *self._environment, *command)
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> int:
        """Terminate it as the kubelet does; its exit code."""
        self._send("TERM")
        return self._child.process.wait(30)

    def log(self) -> str:
        return self._child.log_tail()

    def probes(self) -> list[str]:
        """Where the kubelet asks whether it is alive, and whether it is ready."""
        asked = (self._container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe"))
        return [f"https://{get['host']}:{get['port']}{get['path']}" for get in asked]

    def _pid(self) -> str:
        path = self._directory / "pid"
        return path.read_text().strip() if path.exists() else ""

    def _send(self, number: str) -> None:
        subprocess.run((*ROOT, "kill", f"-{number}", self._pid()), check=False)
