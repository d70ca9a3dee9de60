"""Pages are followed: their commands go to a shell as they stand there, on a real API server."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

from ccm.kube.client import Kube
from ccm.sandbox.workload import SERVICE
from tests.docs.pages import DOCS, PAGES, Page, script
from tests.support.deadlines import timeout
from tests.support.environment import LEASE, LEASES, NODES, SERVICES, Environment
from tests.support.kube.ports import ReservedPort
from tests.support.needed import needed
from tests.support.pki import Authority
from tests.support.running import Controlled, Json, until

pytestmark = pytest.mark.real

Desk = Callable[[str], str]

GETTING_STARTED = DOCS / "getting-started.md"
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
UNDO = "ccm-supervisor manifests --kind=none -- $FLAGS | kubectl delete -f -"
FROM_FILE = re.compile(r"--from-file=(\S+)")
PLACEHOLDERS = {
    " … ": " --cloud-provider=aws ",
    "=NAME ": "=aws ",  # the cloud's
    "NAME": "vm-1",
    "apply -f": "apply --dry-run=server -f",
    "create secret": "create --dry-run=server secret",
    " delete daemonset ccm-supervisor": " delete --dry-run=server ds aws-cloud-controller-manager",
    "set image": "set image --dry-run=server",
    "create configmap": "create --dry-run=server configmap",
}
"""What a page leaves to its reader, and what keeps the cluster as it was."""


@pytest.fixture
def variables(env: Environment, kube_binaries: Path) -> dict[str, str]:
    """Those of an administrator, who has kubectl, our commands, and a kubeconfig."""
    needed(shutil.which("curl"), "curl is not installed: apt-get install curl")
    port = ReservedPort()
    port.release()
    path = (kube_binaries, Path(sys.executable).parent, os.environ["PATH"])
    return {
        **os.environ,
        "PATH": ":".join(map(str, path)),
        "KUBECONFIG": str(env.cluster.kubeconfig("admin")),
        "CCM_RUNTIME_DIR": str(env.directory / "run"),
        "CCM_SECURE_PORT": str(port.number),
    }


@pytest.fixture
def desk(env: Environment, variables: dict[str, str]) -> Desk:
    """What a script prints, each command of which has to succeed."""

    def run(text: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env=variables, cwd=env.directory, capture_output=True, text=True, timeout=timeout(),
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


class Started(Controlled):
    """What a line of a page starts in the foreground."""

    def __init__(self, line: str, env: Environment, variables: dict[str, str]) -> None:
        self.runtime = Path(variables["CCM_RUNTIME_DIR"])
        names = ("PATH", "CCM_RUNTIME_DIR", "CCM_SECURE_PORT")
        self._variables = [f"{name}={variables[name]}" for name in names]
        super().__init__("started", env.directory, [f"cd {env.directory}\n{line}"])

    def command(self, arguments: list[str]) -> list[str]:
        return ["env", *self._variables, "bash", "-c", *arguments]


async def test_a_first_start_goes_as_the_page_says(
    env: Environment, variables: dict[str, str], desk: Desk
) -> None:
    def read(heading: str) -> str:
        text = script(GETTING_STARTED, heading).replace("=NAME", "=simulated")
        text = text.replace(":10258", f":{variables['CCM_SECURE_PORT']}")
        return text.replace("/etc/ccm-supervisor/cloud.conf", str(env.cloud.config))

    await env.add_nodes(2)
    await env.api.post(SERVICES, SERVICE)
    flags, _, rights = read("Flags and rights").partition('"\n')
    start, _, look = read("Start, and look").partition("\n")
    try:
        reported = await asyncio.to_thread(desk, f'{flags}"\n{rights}\n{read("Before the start")}')
        assert "21 checks" in reported
        assert "spec.providerID: simulated://" in reported
        with Started(f'{flags}"\nexec {start}', env, variables) as supervisor:
            await until("it leads", supervisor.is_leading)
            await until("nodes are initialized", env.are_initialized)
            reported = await asyncio.to_thread(desk, look)
            assert ": is leader" in reported
            assert "readyz check passed" in reported
            assert "node-0 (running): initialized" in reported
            assert "service (running): " in reported
            assert supervisor.end() == 0
    finally:
        await asyncio.to_thread(desk, f'{flags}"\n{UNDO}')


def kubectl_lines() -> Iterator[str]:
    """What needs no kubelet, which `exec` and our plugin ask, and nobody's kubeconfig."""
    for path in PAGES:
        for line in Page.read(path).code.replace("|\n", "| ").splitlines():
            has_kubectl = line.strip().startswith("kubectl ") or "| kubectl " in line
            asks_kubelet = " exec " in line or "kubectl ccm " in line
            is_elsewhere = path == GETTING_STARTED or " config view " in line
            if has_kubectl and not asks_kubelet and not is_elsewhere:
                yield line.strip()


async def test_what_pages_tell_kubectl_it_does(env: Environment, desk: Desk) -> None:
    await env.api.post(NODES, {"metadata": {"name": "vm-1"}})
    await env.api.post(SERVICES, SERVICE)
    await apply_lease(env.api, "old")
    lines = [*kubectl_lines()]
    for name in FROM_FILE.findall("\n".join(lines)):
        (env.directory / name).touch()
    assert len(lines) >= 12
    await env.api.post(DAEMON_SETS, daemon_set("aws-cloud-controller-manager"))
    try:
        for line in lines:
            for old, new in PLACEHOLDERS.items():
                line = line.replace(old, new)
            await asyncio.to_thread(desk, line)
    finally:
        await env.api.request("DELETE", f"{DAEMON_SETS}/aws-cloud-controller-manager")


async def apply_lease(api: Kube, holder: str) -> None:
    """Also where there is one: a request of a process that has ended may come late."""
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}}
    await api.request(
        "PATCH", f"{LEASES}/{LEASE}", {**kind, "spec": {"holderIdentity": holder}},
        content_type="application/apply-patch+yaml", params={"fieldManager": "me", "force": "true"},
    )  # fmt: skip


def daemon_set(name: str) -> Json:
    labels = {"app": name}
    containers = [{"name": "it", "image": "it", "args": ["--v=2"]}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": spec}


def test_a_browser_gets_a_certificate_as_the_page_says(tmp_path: Path, desk: Desk) -> None:
    me = Authority("theirs").client("me")
    parts = zip(("certificate", "key"), me.write(tmp_path, "given"), strict=True)
    user = {f"client-{name}-data": b64encode(path.read_bytes()).decode() for name, path in parts}
    named = {"users": [{"name": "me", "user": user}], "contexts": [{"name": "me", "context": {}}]}
    named["contexts"][0]["context"] = {"user": "me"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump({"current-context": "me", **named}))
    code = Page.read(DOCS / "page.md").code.splitlines()
    lines = [
        line.strip() for line in code if line.strip().startswith(("kubectl config", "openssl"))
    ]
    assert len(lines) == 3
    desk("\n".join(["export KUBECONFIG=kubeconfig", *lines]) + " -passout pass:secret")
    key, certificate, _ = load_key_and_certificates((tmp_path / "me.p12").read_bytes(), b"secret")
    assert certificate == me.certificate
    assert key
