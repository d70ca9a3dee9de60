"""True nodes in the lab's instances: containerd, kubelet and kube-proxy, around a control plane.

The control plane is a real one on this host's loopback; a relay in the network outside of the
cloud leads to it, as its load balancer would. The programs of a node have an instance's network
and process ids, so that they end with it, and this host's files.
"""

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

from release.oci import DEFAULT_REGISTRY
from tests.labs.incus.lab import HERE, Lab, until
from tests.labs.kubelets import image
from tests.labs.kubelets.lab import HERE as NODE_FILES
from tests.support.kube.cluster import RealCluster
from tests.support.kube.kubelets import POD_NETWORK

OUTSIDE = "198.51.100.1"
PORT = 6443
IMAGE = "lab-pod:1"
FAMILIES = ("inet", "inet6")
FIND = """
name=$1; shift
p=$(incus list "^$name\\$" --project "$INCUS_PROJECT" -c p -f csv | tail -1)
"""
ASK = f'{FIND} nsenter -t "$p" -n curl -sg --max-time 1 "$1" || true'
ENTER = f"""{FIND}
exec nsenter -t "$p" -n -p -i -u env -u LD_LIBRARY_PATH \
    unshare -m --propagation private --mount-proc bash "$@"
"""


class TrueNodes:
    """Instances that are nodes of a cluster; `programs` are the folders of kubectl and kubelets."""

    def __init__(self, lab: Lab, cluster: RealCluster, servers: Path, programs: Path) -> None:
        self._lab, self._cluster = lab, cluster
        self._servers, self._programs = servers, programs
        self._joins = count(1)
        self._archive = cluster.directory / "pod.tar"
        image.main(programs / "pod", IMAGE, self._archive)
        self._lead_out()

    def join(self, name: str, labels: str = "") -> None:
        """Start the programs of this node, whose instance runs and has its addresses.

        It registers with these labels, `KEY=VALUE` with commas between.
        """
        folder = self._prepare(name)
        addresses = {one["family"]: one["address"] for one in self._lab.addresses(name)}
        own = ",".join(addresses[family] for family in FAMILIES)
        node = (str(NODE_FILES / "node.sh"), name, str(folder), own, "", str(self._archive))
        variables = (
            f"KUBECTL={self._servers}/kubectl",
            f"NODES={self._programs}",
            f"LABELS={labels}",
            f"INCUS_PROJECT={self._lab.project}",
        )
        inside = (str(HERE / "lab.sh"), "exec", self._lab.name, "--", "bash", "-ec", ENTER, "-")
        command = ("/usr/bin/env", *variables, *inside, name, *node)
        self._cluster.start_beside(folder.name, command)

    def _prepare(self, name: str) -> Path:
        """The folder of this node, with the files of its programs."""
        folder = self._cluster.directory / f"{name}-{next(self._joins)}"
        for part in ("containerd", "kubelet", "cni"):
            (folder / part).mkdir(parents=True)
        self._write_kubeconfig(f"system:node:{name}", folder / "kubelet.kubeconfig")
        self._write_kubeconfig("admin", folder / "proxy.kubeconfig")
        ca, pause = str(self._cluster.ca_file), f"{DEFAULT_REGISTRY}/{IMAGE}"
        settings = (str(NODE_FILES / "settings.sh"), name, str(folder), ca, pause, POD_NETWORK)
        subprocess.run(("bash", *settings), check=True)
        with (folder / "proxy.yaml").open("a") as file:
            file.write('nodePortAddresses: ["0.0.0.0/0", "::/0"]\n')
        return folder

    def is_serving(self, name: str, port: int) -> bool:
        """Whether this node sends on what comes to its own addresses at a node port."""
        addresses = [one["address"] for one in self._lab.addresses(name)]
        urls = [f"http://{f'[{one}]' if ':' in one else one}:{port}/" for one in addresses]
        ask = ("exec", "--", "env", f"INCUS_PROJECT={self._lab.project}", "bash", "-ec", ASK, "-")
        return all("node-" in self._lab.run(*ask, name, url) for url in urls)

    @staticmethod
    def clean() -> None:
        """Remove the control groups that are left of containers, once their instances are gone."""
        left = ("find", "/sys/fs/cgroup", "-depth", "-type", "d", "-path", "*/k8s.io*")
        subprocess.run((*left, "-exec", "rmdir", "{}", "+"), stderr=subprocess.DEVNULL, check=False)

    def _lead_out(self) -> None:
        """Start the relay from the network outside to the API server."""
        port_file = self._cluster.directory / "relay.port"
        host, _, port = self._cluster.url.removeprefix("https://").rpartition(":")
        relay = (sys.executable, "-I", str(HERE / "relay.py"), str(os.getpid()), host, port)
        command = ("nsenter", "-t", self._lab.pid(), "-n", *relay, str(port_file))
        self._cluster.start_beside("relay", ("/usr/bin/env", *command, str(PORT), OUTSIDE))
        until(port_file.exists, "the relay to the API server listens")

    def _write_kubeconfig(self, identity: str, path: Path) -> None:
        config = json.loads(self._cluster.kubeconfig(identity).read_text())
        where = config["clusters"][0]["cluster"]
        where["server"], where["tls-server-name"] = f"https://{OUTSIDE}:{PORT}", "127.0.0.1"
        path.write_text(json.dumps(config))
