"""Find or build the real kube-apiserver, etcd and kubectl, and upstream's controllers; starts none.

`python3 -m tests.support.kube.build` prints the folder of the servers, with `peer` that of the
controllers that tests need always, with `openstack`, `vsphere`, `gce` or `azure` that of the one
which the lab of this name is for, with `azure-lab` that of this lab itself, with `helm` Helm's,
with `godo` that of what reads requests with DigitalOcean's client, with `readers` that of what
reads configuration files with upstream's readers, with `kubelets` that of kubelets without
containers, with `kubelets-1.36` or another key of OLDER_KUBELETS that of older ones, with `nodes`
that of true ones and their container runtime, with `vale` that of the linter of prose.
It needs Go, and no Python package. With TEST_KUBE=oldest it is about the oldest supported servers.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REMEDY = "run `make kube`"
PINS = Path(__file__).with_name("pins")

# The time of the release commit, so that a build says the same whenever it is made.
KUBERNETES_BUILD_DATE = "2026-10-27T12:01:04Z"
VERSION_PACKAGES = ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")


class BuildError(Exception):
    """The binaries are not there and a person must act; the text says how."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One Go module that pins programs: its folder, its version and what it builds."""

    folder: Path
    module: str
    programs: Mapping[str, str]
    tags: str = ""
    modfile: str = "go.mod"

    @property
    def go_mod(self) -> str:
        return (self.folder / self.modfile).read_text()

    @property
    def version(self) -> str:
        return _search(rf"{re.escape(self.module)} (v\S+)", self.go_mod)

    @property
    def go_version(self) -> str:
        return _search(r"^go (\S+)", self.go_mod)


KUBERNETES = Pin(
    PINS / ("oldest" if os.environ.get("TEST_KUBE") == "oldest" else "kubernetes"),
    "k8s.io/kubernetes",
    {
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    },
)
ETCD = Pin(PINS / "etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"})
SERVERS = (ETCD, KUBERNETES)

PEER = Pin(PINS / "peer", "k8s.io/cloud-provider", {"cloud-controller-manager": "."})
AWS_PEER = Pin(
    PINS / "aws",
    "k8s.io/cloud-provider-aws",
    {"aws-cloud-controller-manager": "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager"},
)
OPENSTACK_PEER = Pin(
    PINS / "openstack",
    "k8s.io/cloud-provider-openstack",
    {
        "openstack-cloud-controller-manager": (
            "k8s.io/cloud-provider-openstack/cmd/openstack-cloud-controller-manager"
        )
    },
)
GODO = Pin(PINS / "godo", "github.com/digitalocean/godo", {"godo-strict": "."})
READERS = Pin(PINS / "readers", "gopkg.in/gcfg.v1", {"config-readers": "."})
VSPHERE_PEER = Pin(
    PINS / "vsphere",
    "k8s.io/cloud-provider-vsphere",
    {
        "vsphere-cloud-controller-manager": (
            "k8s.io/cloud-provider-vsphere/cmd/vsphere-cloud-controller-manager"
        )
    },
)
KUBELETS = Pin(
    PINS / "kubelets",
    "k8s.io/kubernetes",
    {
        "hollow-kubelet": "./hollow",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    },
)
OLDER_KUBELETS = {
    minor: Pin(
        PINS / "skew",
        "k8s.io/kubernetes",
        {"hollow-kubelet": "./hollow"},
        tags=f"v{minor}",
        modfile=f"v{minor}.mod",
    )
    for minor in ("1.36", "1.34")
}
"""One and three minor releases older than the API server, by their release."""

AZURE_LAB = Pin(
    Path(__file__).parents[2] / "labs" / "azure" / "server",
    "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9",
    {"azure-lab": "."},
)
AZURE_PEER = Pin(
    PINS / "azure",
    "sigs.k8s.io/cloud-provider-azure",
    {
        "azure-cloud-controller-manager": (
            "sigs.k8s.io/cloud-provider-azure/cmd/cloud-controller-manager"
        )
    },
)
NODES = (
    Pin(
        PINS / "kubelets",
        "k8s.io/kubernetes",
        {
            **{
                name: f"k8s.io/kubernetes/cmd/{name}"
                for name in ("kubelet", "kube-proxy", "kube-scheduler")
            },
            "pod": "./pod",
        },
    ),
    Pin(
        PINS / "containerd",
        "github.com/containerd/containerd/v2",
        {
            name: f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        tags="no_btrfs,no_devmapper,no_zfs",
    ),
)
PEERS = (PEER, AWS_PEER)
LAB_PEERS = (OPENSTACK_PEER,)
VSPHERE_PEERS = (VSPHERE_PEER,)
GCE_PEER = Pin(
    PINS / "gce", "k8s.io/cloud-provider-gcp/providers", {"gce-cloud-controller-manager": "."}
)
GCE_PEERS = (GCE_PEER,)
AZURE_LABS, AZURE_PEERS = (AZURE_LAB,), (AZURE_PEER,)

HELM = Pin(PINS / "helm", "helm.sh/helm/v3", {"helm": "helm.sh/helm/v3/cmd/helm"})
CHARTS = (HELM,)
CLIENTS = (GODO,)
CONFIG_READERS = (READERS,)
VALE = Pin(
    PINS / "vale",
    "github.com/vale-cli/vale/v3",
    {"vale": "github.com/vale-cli/vale/v3/cmd/vale"},
)
LINTERS = (VALE,)

BUILDS = {
    "servers": SERVERS,
    "peer": PEERS,
    "openstack": LAB_PEERS,
    "helm": CHARTS,
    "godo": CLIENTS,
    "readers": CONFIG_READERS,
    "vsphere": VSPHERE_PEERS,
    "azure-lab": AZURE_LABS,
    "azure": AZURE_PEERS,
    "gce": GCE_PEERS,
    "vale": LINTERS,
    "kubelets": (KUBELETS,),
    **{f"kubelets-{minor}": (pin,) for minor, pin in OLDER_KUBELETS.items()},
    "nodes": NODES,
}


def find_binaries(pins: Sequence[Pin] = SERVERS) -> Path | None:
    """Return the folder of the binaries, or None when they must be built first; never builds.

    Raises BuildError when `KUBEBUILDER_ASSETS` is set and does not hold all of the servers.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and pins is SERVERS:
        folder = Path(assets).absolute()
        if missing := _missing(folder, pins):
            raise BuildError(f"KUBEBUILDER_ASSETS={assets} does not hold {', '.join(missing)}")
        return folder
    folder = cache_folder(pins)
    return None if _missing(folder, pins) else folder


def build_binaries(pins: Sequence[Pin] = SERVERS) -> Path:
    """Return the folder of the binaries and build them first when needed, which takes minutes."""
    if found := find_binaries(pins):
        return found
    folder = cache_folder(pins)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := find_binaries(pins):  # another process built them while we waited
            return found
        _check_go(pins)
        partial = folder.with_suffix(".partial")
        for leftover in (partial, folder):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir()
        for pin in pins:
            _build(pin, partial)
        partial.rename(folder)
    return folder


def cache_folder(pins: Sequence[Pin]) -> Path:
    """Return where the pinned build belongs: one folder for each versions, checksums and flags."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    versions = "-".join(f"{next(iter(pin.programs))}-{pin.version}" for pin in pins)
    return cache / "ccm-supervisor" / "kube" / versions / _key(pins)


def _key(pins: Sequence[Pin]) -> str:
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()}".encode())
    for pin in pins:
        for path in sorted(filter(Path.is_file, pin.folder.rglob("*"))):
            digest.update(path.read_bytes())
        for program in pin.programs:
            digest.update(" ".join(_command(pin, program, Path())).encode())
    return digest.hexdigest()[:16]


def _build(pin: Pin, folder: Path) -> None:
    for program in pin.programs:
        print(f"building {program} {pin.version} (minutes when cold)", file=sys.stderr, flush=True)
        command = _command(pin, program, folder)
        done = subprocess.run(command, cwd=pin.folder, env=_environment(pin), stdout=sys.stderr)
        if done.returncode != 0:
            raise BuildError(f"`go build` of {program} {pin.version} failed; Go says why above")


def _command(pin: Pin, program: str, folder: Path) -> Sequence[str]:
    flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={_ldflags(pin)}")
    tags = (f"-tags={pin.tags}",) * bool(pin.tags)
    modfile = (f"-modfile={pin.modfile}",) * (pin.modfile != "go.mod")
    chosen = (*flags, *tags, *modfile)
    return ("go", "build", *chosen, "-o", str(folder / program), pin.programs[program])


def _ldflags(pin: Pin) -> str:
    """Return linker flags which state the version, as upstream's build does."""
    if pin is HELM:
        # Of which Kubernetes it renders without a server: that of its client.
        minor = _search(r"^\s*k8s.io/client-go v0\.(\d+)", pin.go_mod)
        prefix = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
        return f"-s -w -X {prefix}Major=1 -X {prefix}Minor={minor}"
    if pin.module != KUBERNETES.module:
        return "-s -w"
    major, minor, _ = pin.version.removeprefix("v").split(".", 2)
    values = {
        "gitVersion": pin.version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "",  # the module proxy does not tell
        "gitTreeState": "archive",
        "buildDate": KUBERNETES_BUILD_DATE,
    }
    flags = [f"-X {pkg}.{key}={value}" for pkg in VERSION_PACKAGES for key, value in values.items()]
    return " ".join(("-s -w", *flags))


def _environment(pin: Pin | None = None) -> Mapping[str, str]:
    cgo = "1" if pin is VALE else "0"  # its parsers of code are C
    return {**os.environ, "CGO_ENABLED": cgo, "GOFLAGS": "", "GOWORK": "off"}


def _check_go(pins: Sequence[Pin]) -> None:
    needed = max((pin.go_version for pin in pins), key=_numbers)
    remedy = f"install Go {needed} or newer from https://go.dev/dl/ and put it on PATH"
    if shutil.which("go") is None:
        raise BuildError(f"Go is missing: {remedy}")
    # Asked in the pin's folder: an older Go that may fetch a newer one answers with that one.
    asked = ("go", "env", "GOVERSION")
    answer = subprocess.run(
        asked, cwd=pins[-1].folder, env=_environment(), capture_output=True, text=True
    )
    version = answer.stdout.strip().removeprefix("go")
    if answer.returncode != 0 or _numbers(version) < _numbers(needed):
        raise BuildError(f"Go is too old ({version or answer.stderr.strip()}): {remedy}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _missing(folder: Path, pins: Sequence[Pin]) -> list[str]:
    names = [name for pin in pins for name in pin.programs]
    return [name for name in names if not os.access(folder / name, os.X_OK)]


def _search(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise BuildError(f"a go.mod under {PINS} has no line like {pattern!r}")
    return found[1]


if __name__ == "__main__":
    try:
        print(build_binaries(BUILDS[(*sys.argv[1:], "servers")[0]]))
    except BuildError as error:
        sys.exit(f"error: {error}")
