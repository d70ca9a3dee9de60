"""A real etcd and kube-apiserver on loopback, for tests and benchmarks; no pytest in here.

    with RealCluster.start(binaries, directory) as cluster:
        cluster.grant("ccm", [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}])
        run(kubeconfig=cluster.kubeconfig("ccm"))

No controller and no scheduler run: nothing makes default service accounts, endpoints or pods.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Self

from tests.support.deadlines import Deadline, timeout
from tests.support.kube import access, audit
from tests.support.kube.access import Rule, Subject
from tests.support.kube.child import Child, Nursery
from tests.support.kube.ports import ReservedPort
from tests.support.kube.rest import JSON, MERGE_PATCH, Answer, RestClient
from tests.support.kube.servers import GROUPS, Layout, apiserver_command, etcd_command

START_LIMIT = 120.0  # seconds at rest; several may start at once
ITS_EVENTS = "ipallocator-repair-controller"  # who tells of Services in the API server itself
NAMESPACES = "/api/v1/namespaces"
FIRST_OBJECTS = (
    f"{NAMESPACES}/default",
    f"{NAMESPACES}/default/services/kubernetes",
    f"{NAMESPACES}/kube-system",
    f"{NAMESPACES}/kube-public",
    f"{NAMESPACES}/kube-node-lease",
)
"""What the API server makes by itself, some of it after it is ready."""


class ClusterError(Exception):
    """The cluster did not do what it was asked; the text says what its log says."""


class RealCluster:
    """One cluster, which dies with this process however this process ends."""

    def __init__(
        self,
        binaries: Path,
        directory: Path,
        apiserver_flags: Sequence[str] = (),
        users: Mapping[str, str] | None = None,
    ) -> None:
        """Take what is needed to start; `directory` must be empty, or not there yet.

        `users` are further identities with a token: names, and the group of each, if any.
        """
        self.directory = directory.absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._held = ExitStack()
        ports = [ReservedPort() for _ in range(3)]
        for port in ports:
            self._held.callback(port.release)
        self._layout = Layout(binaries, self.directory, *(port.number for port in ports))
        self._tokens = self._layout.write_files(GROUPS | dict(users or {}))
        self._apiserver_command = apiserver_command(self._layout, apiserver_flags)
        self.client = RestClient(self.url, self.ca_file)
        self._held.callback(self.client.close)
        self._nursery = Nursery()
        self._held.callback(self._nursery.close)
        self._audited = 0
        self._etcd: Child | None = None
        self._apiserver: Child | None = None

    @classmethod
    def start(
        cls,
        binaries: Path,
        directory: Path,
        apiserver_flags: Sequence[str] = (),
        users: Mapping[str, str] | None = None,
    ) -> Self:
        """Return a running cluster; a flag given here overrides ours of the same name."""
        cluster = cls(binaries, directory, apiserver_flags, users)
        try:
            cluster._start_etcd()
            cluster.start_apiserver()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def stop(self) -> None:
        """Kill both servers and drop the data; logs and the audit log stay."""
        self._held.close()
        shutil.rmtree(self._layout.etcd_data, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- where it is, and who may ask

    @property
    def url(self) -> str:
        return self._layout.url

    @property
    def ca_file(self) -> Path:
        return self._layout.ca_file

    @property
    def pids(self) -> Mapping[str, int]:
        """The process ids of the servers that run, by name: to freeze or to measure them."""
        children = (self._etcd, self._apiserver)
        return {child.name: child.pid for child in children if child and child.is_running()}

    def token(self, identity: str) -> str:
        """Return the token of `admin` (may do all), `ccm` or `nobody` (no rights at first)."""
        return self._tokens[identity]

    def kubeconfig(self, identity: str) -> Path:
        """Return a kubeconfig file of `admin`, `ccm` or `nobody`."""
        return self._write_kubeconfig(identity, self.token(identity))

    def service_account_kubeconfig(
        self, namespace: str, name: str, rules: Sequence[Rule] = ()
    ) -> Path:
        """Return a kubeconfig file of a service account with cluster-wide `rules`.

        The namespace and the service account are made when they are not there.
        """
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        for path, made in (("/api/v1/namespaces", namespace), (accounts, name)):
            self.request("POST", path, {"metadata": {"name": made}}).expect(201, 409)
        self._grant(Subject(name, namespace), rules, None)
        token = self.request("POST", f"{accounts}/{name}/token", {"spec": {}}).expect()
        return self._write_kubeconfig(f"{namespace}-{name}", token.body["status"]["token"])

    def grant(self, identity: str, rules: Sequence[Rule], namespace: str | None = None) -> None:
        """Add rights, cluster-wide or in one namespace, and return once they are in force."""
        self._grant(Subject(identity), rules, namespace)

    def revoke(self, name: str) -> None:
        """Take from an identity, or a service account, what it was granted cluster-wide."""
        path = f"{access.RBAC}/clusterrolebindings"
        for item in self.request("GET", path).expect().body["items"]:
            if (binding := item["metadata"]["name"]).startswith(f"{name}-"):
                self.request("DELETE", f"{path}/{binding}").expect()

    # --- asking it

    def request(
        self, method: str, path: str, body: object = None, *, identity: str = "admin"
    ) -> Answer:
        """Send one request as `identity`; raise OSError when no answer came."""
        headers = {
            "Authorization": f"Bearer {self.token(identity)}",
            "Content-Type": MERGE_PATCH if method == "PATCH" else JSON,
            "User-Agent": "real-cluster",
        }
        return self.client.send(method, path, body, headers=headers)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as `admin` and return its output; raise ClusterError when it fails."""
        command = (
            str(self._layout.binaries / "kubectl"),
            f"--kubeconfig={self.kubeconfig('admin')}",
            *arguments,
        )
        environment = {**os.environ, "KUBECACHEDIR": str(self.directory / "kubectl-cache")}
        done = subprocess.run(
            command, input=stdin, env=environment, capture_output=True, text=True, timeout=timeout()
        )
        if done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def audit(self, *, is_whole: bool = False) -> Iterator[audit.AuditEntry]:
        """Yield the requests that have finished so far, those of the set-up included.

        Those that were forgotten only with `is_whole`.
        """
        return audit.read_audit_log(self._layout.audit_log, 0 if is_whole else self._audited)

    def forget_audit(self) -> None:
        """Let `audit` begin here: a test reads it often, and those before it have written much."""
        log = self._layout.audit_log
        self._audited = log.stat().st_size if log.exists() else 0

    # --- faults

    def start_beside(self, name: str, command: Sequence[str]) -> Child:
        """Start another program, which is killed with the cluster; its log is beside theirs."""
        return self._nursery.start(name, command, self.directory)

    def start_apiserver(self) -> None:
        """Start the API server at its port and return when it is ready."""
        if self._apiserver and self._apiserver.is_running():
            raise ClusterError("the API server runs already")
        self._apiserver = self._nursery.start(
            "kube-apiserver", self._apiserver_command, self.directory
        )
        self._wait_for(self._apiserver, self._is_ready)

    def kill_apiserver(self) -> None:
        """Kill the API server; its port refuses connections and stays its own.

        Its next watch cache is new, so a watch from a version of before gets 410 (Expired).
        """
        if self._apiserver:
            self._apiserver.kill()

    def back_up(self) -> Path:
        """Stop both servers, copy the data, and start them again; return the copy."""
        backup = self.directory / "backup"
        self._exchange(self._layout.etcd_data, backup)
        return backup

    def restore(self, backup: Path) -> None:
        """Start both servers again with the data of a backup: versions begin again at its own.

        What `etcdctl snapshot restore` does, too, unless it is told to `--bump-revision`.
        """
        self._exchange(backup, self._layout.etcd_data)

    # --- inside

    def _start_etcd(self) -> None:
        self._etcd = self._nursery.start("etcd", etcd_command(self._layout), self.directory)
        with closing(RestClient(self._layout.etcd_url)) as etcd:
            self._wait_for(
                self._etcd, lambda: etcd.send("GET", "/health", headers={}).status == 200
            )

    def _exchange(self, source: Path, target: Path) -> None:
        """Replace `target` with a copy of `source` while neither server runs."""
        self.kill_apiserver()
        if self._etcd:
            self._etcd.kill()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        self._start_etcd()
        self.start_apiserver()

    def _is_ready(self) -> bool:
        paths = ("/readyz", *FIRST_OBJECTS)
        return all(self.request("GET", path).status == 200 for path in paths)

    def _wait_for(self, child: Child, is_ready: Callable[[], bool]) -> None:
        """Until `is_ready`; a server that does not answer yet is not."""
        deadline = Deadline(START_LIMIT)
        while True:
            with suppress(OSError):
                if is_ready():
                    return
            if not child.is_running() or deadline.has_passed():
                state = "is not ready" if child.is_running() else "ended"
                raise ClusterError(f"{child.name} {state}; its log ends:\n{child.log_tail()}")
            time.sleep(0.05)

    def _grant(self, subject: Subject, rules: Sequence[Rule], namespace: str | None) -> None:
        if not rules:
            return
        prefix, base = "Cluster", access.RBAC
        if namespace is not None:
            prefix, base = "", f"{access.RBAC}/namespaces/{namespace}"
        roles, bindings = (f"{base}/{prefix.lower()}{kind}" for kind in ("roles", "rolebindings"))
        role = {"metadata": {"generateName": f"{subject.name}-"}, "rules": list(rules)}
        made = self.request("POST", roles, role).expect()
        name = made.body["metadata"]["name"]
        self.request("POST", bindings, access.binding(subject, f"{prefix}Role", name)).expect()
        deadline = Deadline(START_LIMIT)
        for review in access.reviews(subject, rules, namespace):
            while not self._is_allowed(review):
                if deadline.has_passed():
                    raise ClusterError(f"{name} is not in force: {review}")
                time.sleep(0.01)

    def _is_allowed(self, review: Mapping[str, object]) -> bool:
        answer = self.request("POST", access.REVIEWS, review).expect()
        return bool(answer.body["status"]["allowed"])

    def _write_kubeconfig(self, name: str, token: str) -> Path:
        path = self._layout.secrets / f"{name}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name}}],
        }
        path.write_text(json.dumps(config))
        return path
