"""Real kubelets without containers, and kube-controller-manager, around a real API server.

A kubelet here is upstream's code over a container runtime in memory: what it writes to its Node,
when, and what it asks for are its own.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.kube.audit import AuditEntry
from tests.support.kube.child import Child
from tests.support.kube.cluster import RealCluster
from tests.support.pki import Authority

REMEDY = "run `make kubelets`, and for older ones `make labs`"
POD_NETWORK = "10.244.0.0/16"
BOOTSTRAP = "system:bootstrap:lab"
CONTROLLERS = "system:kube-controller-manager"
GRACE = 20  # seconds of silence after which kube-controller-manager says that a Node is not ready


class Kubelets:
    """A cluster in which kubelets may join, by name."""

    def __init__(self, cluster: RealCluster, programs: Sequence[Path], authority: Path) -> None:
        self.cluster = cluster
        self._kubelets, self._controllers = programs
        self._authority = authority
        self._running: dict[str, Child] = {}
        self._addresses: dict[str, str] = {}

    @classmethod
    @contextmanager
    def start(
        cls, servers: Path, programs: Sequence[Path], directory: Path, names: Sequence[str]
    ) -> Iterator["Kubelets"]:
        """A cluster where the kubelets of these machines may join; none of them runs yet.

        `programs` are the folders of kubelets and of kube-controller-manager.
        """
        directory.mkdir(parents=True, exist_ok=True)
        authority, _ = Authority("cluster").own.write(directory, "ca")
        flags = (
            "--authorization-mode=Node",
            "--enable-admission-plugins=NodeRestriction",
            f"--client-ca-file={authority}",
        )
        users = {
            CONTROLLERS: "",
            BOOTSTRAP: "system:bootstrappers",
            **{f"system:node:{name}": "system:nodes" for name in names},
        }
        with RealCluster.start(servers, directory / "cluster", flags, users) as cluster:
            kubelets = cls(cluster, programs, authority)
            kubelets._allow_bootstrap()
            kubelets._start_controllers()
            yield kubelets

    def join(self, name: str, *flags: str, has_token: bool = True) -> None:
        """Start the kubelet of this machine; without a token it asks for certificates.

        Flags given here override ours.
        """
        directory = self.directory(name)
        directory.mkdir(exist_ok=True)
        access = [f"--kubeconfig={self.cluster.kubeconfig(f'system:node:{name}')}"]
        if not has_token:
            access = [
                f"--kubeconfig={directory}/kubeconfig",
                f"--bootstrap-kubeconfig={self.cluster.kubeconfig(BOOTSTRAP)}",
                "--rotate-certificates",
                "--rotate-server-certificates",
            ]
        self._running[name] = self.cluster.start_beside(
            f"kubelet-{name}",
            (
                "/usr/bin/env",
                f"TMPDIR={directory}",
                str(self._kubelets / "hollow-kubelet"),
                f"--hostname-override={name}",
                "--cloud-provider=external",
                "--enable-controller-attach-detach",  # which kubemark switches off
                f"--cert-dir={directory}/pki",
                f"--address={self._address(name)}",
                *access,
                *flags,
            ),
        )

    def kill(self, name: str) -> None:
        """End this kubelet at once, as the power does."""
        self._running.pop(name).kill()

    def directory(self, name: str) -> Path:
        """Where it keeps its files; its certificates are in `pki`."""
        return self.cluster.directory / name

    def node_writes(self) -> Counter[tuple[str, str]]:
        """Writes to Nodes in the audit log, from where it begins, by program and subresource."""
        return Counter(
            (entry.user_agent.partition("/")[0], entry.subresource)
            for entry in _node_writes(self.cluster.audit())
        )

    def last_node_write(self) -> float:
        """When the whole log has the last of them, as a wall clock has it; 0 without any."""
        writes = _node_writes(self.cluster.audit(is_whole=True))
        return max((entry.answered_at for entry in writes), default=0.0)

    def _address(self, name: str) -> str:
        """An address of loopback that is this kubelet's alone: all listen at the same port."""
        high, low = divmod(os.getpid(), 200)
        address = f"127.{20 + high % 200}.{low}.{1 + len(self._addresses)}"
        return self._addresses.setdefault(name, address)

    def _allow_bootstrap(self) -> None:
        """As kubeadm does: client certificates are approved, a serving one waits for someone."""
        for role in (
            "node-bootstrapper",
            "certificates.k8s.io:certificatesigningrequests:nodeclient",
        ):
            self.cluster.kubectl(
                "create",
                "clusterrolebinding",
                f"test:{role.rpartition(':')[2]}",
                f"--clusterrole=system:{role}",
                "--group=system:bootstrappers",
            )

    def _start_controllers(self) -> None:
        key = self._authority.with_suffix(".key")
        self.cluster.start_beside(
            "kube-controller-manager",
            (
                str(self._controllers / "kube-controller-manager"),
                f"--kubeconfig={self.cluster.kubeconfig(CONTROLLERS)}",
                "--cloud-provider=external",
                "--allocate-node-cidrs",
                f"--cluster-cidr={POD_NETWORK}",
                "--use-service-account-credentials",
                f"--cluster-signing-cert-file={self._authority}",
                f"--cluster-signing-key-file={key}",
                "--secure-port=0",
                "--leader-elect=false",
                f"--node-monitor-grace-period={GRACE}s",
                "--node-monitor-period=2s",
            ),
        )


def _node_writes(entries: Iterable[AuditEntry]) -> Iterator[AuditEntry]:
    return (one for one in entries if one.is_write and one.resource == "nodes" and one.code < 300)
