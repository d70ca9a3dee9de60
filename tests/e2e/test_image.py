"""The image in a real container runtime: its size, what it holds, and that it does its work."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from ccm.manifests.rbac import APP_NAME
from release import debian
from release.check import invalid_bill
from release.image import make_image
from release.tree import run
from tests.e2e.rbac.test_in_cluster import MOUNT_OF_ACCOUNT
from tests.e2e.test_seed_rbac import EVERYTHING, FLAGS, add_work, as_upstream, is_done
from tests.support.environment import Environment
from tests.support.namespaces import ROOT
from tests.support.needed import needed
from tests.support.running import Json, Running, long, until, wait_for

pytestmark = [pytest.mark.real, long, pytest.mark.timeout(1200)]  # it is made of downloads

LARGEST = 150_000_000  # bytes
REQUESTED = 300 * 2**20  # bytes of memory, in the manifests


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archive and what it is made of."""
    missing = [name for name in ("apt-get", "umoci", "runc", "skopeo") if not which(name)]
    needed(not missing, f"not installed: {missing}: apt-get install umoci runc skopeo")
    return make_image(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def bundle(image: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """It unpacked by others' programs, as a runtime wants it."""
    directory = tmp_path_factory.mktemp("bundle")
    run(*ROOT, "skopeo", "copy", "-q", f"oci-archive:{image[0]}", f"oci:{directory}/layout:it")
    run(*ROOT, "umoci", "unpack", "--image", directory / "layout:it", directory / "bundle")
    yield directory / "bundle"
    run(*ROOT, "rm", "-rf", directory)


class Container(Running):
    """A process of the image on the host's network; `files` are directories that it sees."""

    def __init__(
        self, bundle: Path, directory: Path, args: list[str], env: list[str], files: dict[str, Path]
    ) -> None:
        path = bundle / "config.json"
        config: Json = json.loads(path.read_text())
        config["process"] |= {"args": args, "terminal": False}
        config["process"]["env"] += env
        config["root"]["readonly"] = True
        spaces = config["linux"]["namespaces"]
        config["linux"]["namespaces"] = [one for one in spaces if one["type"] != "network"]
        places: dict[str, Any] = {place: (str(source), "bind") for place, source in files.items()}
        for place, (source, kind) in {**places, "/tmp": ("tmpfs", "tmpfs")}.items():
            options = ["rbind", "ro"] if kind == "bind" else ["mode=1777"]
            mount = {"destination": place, "type": kind, "source": source, "options": options}
            config["mounts"].append(mount)
        path.write_text(json.dumps(config))
        self.name = f"ccm-{time.monotonic_ns()}"
        super().__init__("container", directory, ["run", "--bundle", str(bundle), self.name])

    def command(self, arguments: list[str]) -> list[str]:
        return [*ROOT, "runc", *arguments]

    def __exit__(self, *_: object) -> None:
        subprocess.run(self.command(["delete", "--force", self.name]), check=False)
        self.exit_code()

    def status(self) -> Json:
        """What `kubectl exec` shows; empty while it is not up."""
        show = ("exec", self.name, APP_NAME, "status", "-o", "json")
        done = subprocess.run(self.command([*show]), capture_output=True, check=False)
        assert self.process.poll() is None, self.tail()
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def memory(self) -> int:
        """Bytes of all its processes, with shared pages counted once."""
        pids = json.loads(run(*self.command(["ps", "--format=json", self.name])))
        rollups = (run(*ROOT, "cat", f"/proc/{pid}/smaps_rollup") for pid in pids)
        lines = [line for text in rollups for line in text.splitlines() if line.startswith("Pss:")]
        return sum(int(line.split()[1]) * 1024 for line in lines)


def test_it_is_small(bundle: Path) -> None:
    sizes = [path.lstat().st_size for path in (bundle / "rootfs").rglob("*") if path.is_file()]
    assert sum(sizes) <= LARGEST


def test_another_one_is_the_same(image: tuple[Path, Path], tmp_path: Path) -> None:
    assert [p.read_bytes() for p in make_image(tmp_path)] == [p.read_bytes() for p in image]


def test_one_for_another_architecture_runs(tmp_path: Path) -> None:
    """With its own Python and libraries, in an emulator of the processor."""
    emulator = which("qemu-aarch64") or ""
    needed(emulator, "not installed: qemu-user: apt-get install qemu-user")
    archive, bill = make_image(tmp_path, "arm64")
    components = json.loads(bill.read_text())["components"]
    assert [one["name"] for one in components if "licenses" not in one] == []
    root, layout = tmp_path / "root", tmp_path / "layout"
    shutil.unpack_archive(archive, layout, "tar")
    blob = max((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    shutil.unpack_archive(blob, root, "gztar", filter="tar")
    python = (emulator, "-L", root, root / f"usr/bin/python{debian.PYTHON}")
    loads = "import aiohttp, cryptography.x509, httptools, orjson, zmq; from workers import main"
    variables = {"PYTHONHOME": str(root / "usr"), "PYTHONPATH": ""}
    assert run(*python, "-c", loads, **variables) == ""
    said = run(*python, root / f"usr/local/bin/{APP_NAME}", "version", **variables)
    assert said.split()[0] == APP_NAME


def test_its_contents_are_reported_in_a_valid_form(image: tuple[Path, Path]) -> None:
    needed(find_spec("cyclonedx"), "run: pip install --require-hashes -r requirements/release.txt")
    text = image[1].read_text()
    assert invalid_bill(text) == ""
    names = {component["name"] for component in json.loads(text)["components"]}
    assert {one.name for one in debian.pinned(debian.host_architecture())} | {
        "ccm-supervisor",
        "botocore",
        "aiohttp",
    } <= names


async def test_the_historical_daemonset_does_its_work_in_it(
    bundle: Path, env: Environment, tmp_path: Path
) -> None:
    """Command and arguments of Kubernetes' documentation, a read-only root, and no user named."""
    seeded = as_upstream(env, "cloud-controller-manager", EVERYTHING)
    await add_work(env)
    kubeconfig = yaml.safe_load(seeded.where.kubeconfig.read_text())
    account, config = tmp_path / "account", tmp_path / "config"
    for path in (account, config):
        path.mkdir()
    (account / "token").write_text(kubeconfig["users"][0]["user"]["token"])
    (account / "ca.crt").write_text(env.cluster.ca_file.read_text())
    (config / "cloud.conf").write_text(seeded.where.cloud_config.read_text())
    tmp_path.chmod(0o755)
    host, _, port = env.cluster.url.removeprefix("https://").partition(":")
    variables = [f"KUBERNETES_SERVICE_HOST={host}", f"KUBERNETES_SERVICE_PORT={port}"]
    cloud = ("--cloud-provider=simulated", "--cloud-config=/etc/cloud/cloud.conf")
    args = ["/usr/local/bin/cloud-controller-manager", *cloud, *FLAGS, "--secure-port=0"]
    places = {MOUNT_OF_ACCOUNT: account, "/etc/cloud": config}
    with Container(bundle, tmp_path, args, variables, places) as container:
        await until("all is done", lambda: is_done(env, with_volume=True))
        assert wait_for("it is up", container.status)["leader"]["is_leader"]
        assert container.memory() <= REQUESTED
        assert container.end() == 0, container.tail()
