"""The rendered Pod does its work, without a container runtime, within the limits it asks for."""

import asyncio
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pytest

from ccm.kube.client import Kube
from ccm.manifests.rbac import APP_NAME
from tests.e2e.rbac.grants import applied, objects, rendered
from tests.e2e.rbac.story import Page, Story
from tests.integration.chart.helm import as_values, template
from tests.support.deadlines import timeout
from tests.support.kube.child import Nursery
from tests.support.kube.cluster import RealCluster
from tests.support.kube.ports import ReservedPort
from tests.support.namespaces import ROOT, in_root, why_no_namespaces
from tests.support.needed import needed
from tests.support.running import Cloud, Json, until, wait_for

SCRIPT = Path(__file__).with_name("pod.sh")
MOUNT_OF_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


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
        mounts["account"] = MOUNT_OF_ACCOUNT
        lines = (f"{place} {volumes.get(name, '')}\n" for name, place in mounts.items())
        (directory / "volumes").write_text("".join(lines))

    def __enter__(self) -> Self:
        words = (*self._container["command"], *self._container["args"])
        command = (self._user, "env", "-i", *self._environment, *words)
        script = in_root(SCRIPT, self._directory, *command)
        self._child = self._nursery.start("pod", script, self._directory)
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
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout(), check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> int:
        """Terminate it as the kubelet does; its exit code."""
        self._send("TERM")
        return self._child.process.wait(timeout())

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


pytestmark = pytest.mark.real

ACCOUNT = f"/api/v1/namespaces/kube-system/serviceaccounts/{APP_NAME}"
FLAGS = (
    "--cloud-provider=simulated",
    "--cloud-config=/etc/cloud/cloud.conf",
    "--use-service-account-credentials",
    "--bind-address=127.0.0.1",
    "--worker-silence-limit=1m",
)


@pytest.fixture
def port() -> int:
    """One that is free: the Pod's user could not share a reserved one."""
    port = ReservedPort()
    port.release()
    return port.number


@pytest.mark.parametrize("by", ["command", "chart"])
async def test_a_pod_of_these_manifests_initializes_nodes(
    by: str, cluster: RealCluster, api: Kube, port: int, tmp_path: Path
) -> None:
    missing = why_no_namespaces("setpriv", "util-linux")
    needed(not missing, missing)
    flags = (*FLAGS, f"--secure-port={port}")
    text = rendered(*flags) if by == "command" else template(tmp_path, {"flags": as_values(flags)})
    (daemon_set,) = objects(text, "DaemonSet")
    spec = daemon_set["spec"]["template"]["spec"]
    host, _, number = cluster.url.removeprefix("https://").partition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": number}
    with applied(cluster, text), Cloud(tmp_path) as cloud:
        volumes = {
            "account": filled(tmp_path / "account", account_files(cluster)),
            "cloud-config": filled(tmp_path / "config", {"cloud.conf": cloud.config.read_text()}),
        }
        async with cloud.admin() as admin:
            story = Story(api, admin)
            with Pod(tmp_path, spec, environment, volumes) as pod:
                await story.joins("vm-1")
                for url in pod.probes():
                    await until(f"{url} succeeds", Page(url).is_shown)
                status = await asyncio.to_thread(pod.run, "ccm-supervisor", "status", "-o", "json")
                assert json.loads(status)["leader"]["is_leader"]
                assert await asyncio.to_thread(pod.end) == 0, pod.log()
            await story.forget()


def account_files(cluster: RealCluster) -> dict[str, str]:
    """What the kubelet mounts for the Pod's service account."""
    answer = cluster.request("POST", f"{ACCOUNT}/token", {"spec": {}}).expect()
    return {"token": answer.body["status"]["token"], "ca.crt": cluster.ca_file.read_text()}


def filled(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_text(content)
    return directory
