"""The lab from Python: commands on its host and nodes, objects, traffic, and who led when."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count, pairwise
from pathlib import Path
from shutil import which
from threading import Event
from typing import Any

from tests.support.deadlines import timeout
from tests.support.kube.build import KUBELETS, SERVERS, find_binaries
from tests.support.kube.build import NODES as PROGRAMS
from tests.support.needed import needed
from tests.support.running import wait_for

HERE = Path(__file__).parent
SCRIPT = HERE / "lab.sh"
NODES = ("vm-1", "vm-2", "vm-3")
LEASE = ("-n", "kube-system", "lease", "cloud-controller-manager")
STARTS = 300  # seconds until it is up

Json = dict[str, Any]


@contextmanager
def started() -> Iterator["Lab"]:
    """A lab in a folder of its own, which is short enough for sockets."""
    programs = [find_binaries(one) for one in (SERVERS, (KUBELETS,), PROGRAMS)]
    tools = [which(name) for name in ("runc", "nft", "conntrack", "unshare")]
    needed(os.geteuid() == 0, "true kubelets need root: namespaces and containers")
    needed(all((*programs, *tools)), "not installed: tests/labs/kubelets/lab.sh install")
    with (
        tempfile.TemporaryDirectory(prefix="kl-") as directory,
        Lab(Path(directory, "s")).running() as lab,
    ):
        yield lab


class Lab:
    """Three nodes that run, or not; `state` is the folder of their files."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def run(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        """What a command of lab.sh prints."""
        return _output((str(SCRIPT), *words), stdin, limit, KUBELETS_LAB_STATE=str(self.state))

    @contextmanager
    def running(self) -> Iterator["Lab"]:
        try:
            self.run("up", limit=STARTS)
            yield self
        finally:
            self.run("down")

    def here(self, *command: str) -> tuple[str, ...]:
        """The command on the control plane's host."""
        pid = (self.state / "pids" / "hub").read_text().split()[0]
        return ("nsenter", "-t", pid, "-n", *command)

    def kubectl_command(self, *words: str) -> tuple[str, ...]:
        servers = (self.state / "programs").read_text().splitlines()[0]
        access = f"--kubeconfig={self.state}/admin.kubeconfig"
        return self.here(f"{servers}/kubectl", access, f"--cache-dir={self.state}/kubectl", *words)

    def kubectl(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        return _output(self.kubectl_command(*words), stdin, limit)

    def tried(self, *words: str) -> str:
        """What `kubectl` prints; empty when it fails."""
        done = subprocess.run(self.kubectl_command(*words), capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    def flags(self) -> tuple[str, ...]:
        """The product's flags in a Pod of this cluster."""
        return tuple(self.run("flags", "/etc/cloud/cloud.conf").split())

    def get(self, *words: str) -> Json:
        answer: Json = json.loads(self.kubectl("get", *words, "-o", "json"))
        return answer

    def cloud(self, path: str) -> Json:
        """An answer of the cloud's admin surface."""
        url = (self.state / "cloud.url").read_text().strip()
        answer: Json = json.loads(_output(self.here("curl", "-sSf", f"{url}/admin/{path}")))
        return answer

    @contextmanager
    def traffic(self, url: str, rate: float = 50) -> Iterator["Traffic"]:
        """Requests from outside of the nodes' network during the block; counted at its end."""
        command = self.here(sys.executable, "-I", str(HERE / "traffic.py"), url, f"{rate:g}")
        counted = Traffic()
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as running:
            try:
                yield counted
            finally:
                printed = json.loads(running.communicate(timeout=timeout())[0])
                counted.by, counted.failed = printed["by"], printed["failed"]

    def requests(self, url: str, count: int, rate: float = 50) -> "Traffic":
        """So many of them, from outside of the nodes' network."""
        command = (sys.executable, "-I", str(HERE / "traffic.py"), url, f"{rate:g}", str(count))
        return Traffic(**json.loads(_output(self.here(*command))))

    def serve(self) -> str:
        """The URL of a Service whose Pods are on two nodes, once its load balancer serves it."""
        self.kubectl("apply", "-f", str(HERE / "web.yaml"))
        service = ("service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
        address = wait_for("the balancer's address", lambda: self.kubectl("get", *service))
        url = f"http://{address}/"

        def is_served() -> bool:
            return not self.requests(url, 25).failed

        wait_for("all nodes pass on requests", is_served)
        return url

    @contextmanager
    def churn(self) -> Iterator[None]:
        """What the product has to look at, and the cloud must not be asked to change."""
        ended = Event()

        def work() -> None:
            for number in count(1):
                if ended.wait(0.5):
                    return
                self.kubectl("scale", "deployment/churn", f"--replicas={1 + number % 3}")
                name = NODES[number % len(NODES)]
                self.kubectl("label", "--overwrite", "node", name, f"example.com/churn=n{number}")

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            try:
                yield
            finally:
                ended.set()
                working.result()

    @contextmanager
    def leaders(self) -> Iterator["Leaders"]:
        """Who held the lease during the block; complete at its end."""
        seen = Leaders()
        command = self.kubectl_command("get", *LEASE, "-o", "json", "--watch")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            try:
                yield seen
            finally:
                running.terminate()
                text = running.communicate(timeout=timeout())[0]
                seen.add(text)


@dataclass
class Traffic:
    """How many requests were answered by each node, and what happened to the others."""

    by: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


@dataclass
class Leaders:
    """Each leader in its turn: its name, when it acquired the lease, and until when it led."""

    terms: list[tuple[str, datetime, datetime]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Read what `kubectl get --watch` printed: one object after the other."""
        decoder, at = json.JSONDecoder(), 0
        while (at := len(text) - len(text[at:].lstrip())) < len(text):
            lease, at = decoder.raw_decode(text, at)
            spec = lease["spec"]
            acquired, renewed = (
                datetime.fromisoformat(spec[key]) for key in ("acquireTime", "renewTime")
            )
            term = (spec.get("holderIdentity") or "", acquired, renewed)
            if self.terms and (not term[0] or self.terms[-1][:2] == term[:2]):
                term = (*self.terms.pop()[:2], renewed)  # without a holder, it was released then
            self.terms.append(term)

    @property
    def longest_gap(self) -> float:
        """Seconds for which nobody led: since a leader released the lease, or renewed it last."""
        gaps = [(after[1] - before[2]).total_seconds() for before, after in pairwise(self.terms)]
        return max(gaps, default=0.0)


def _output(
    command: tuple[str, ...], stdin: str | None = None, limit: float = 60, **variables: str
) -> str:
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout(limit),
        env=os.environ | variables,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
