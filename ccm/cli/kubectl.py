"""`kubectl ccm`: the commands of the leader's Pod, found by the Lease, through the API server.

kubectl itself connects and authenticates, so that its flags, contexts and plugins hold here, too.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import click
import orjson

from ccm.cli.reporting import Group, example, fail, reported, say, show
from ccm.controllers import EXPLAINED
from ccm.model.conform import conform
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.model.status import Status

CONTAINER = "ccm-supervisor"


@dataclass(frozen=True, slots=True)
class Cluster:
    """How kubectl reaches the cluster, and where the Pods and the Lease are."""

    flags: Sequence[str]
    lease: str
    selector: str

    def read(self, *words: str) -> Json:
        """What `kubectl get` prints; ends the command with its error."""
        done = self.run("get", *words, "-o", "json")
        if done.returncode:
            fail([done.stderr.decode(errors="replace").strip()])
        return mapping(orjson.loads(done.stdout))  # type: ignore[return-value]

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        command = ("kubectl", *self.flags, *words)
        try:
            return subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            fail(["kubectl is not on PATH; install it"])

    def exec_words(self, pod: str, *words: str) -> tuple[str, ...]:
        return ("exec", *words, pod, "-c", CONTAINER, "--", "ccm-supervisor")

    def pods(self) -> list[Json]:
        """The replicas."""
        return objects(self.read("pods", "-l", self.selector).get("items"))

    def holder(self) -> str:
        """Who holds the Lease; empty when it is free."""
        return text(mapping(self.read("lease", self.lease).get("spec")).get("holderIdentity"))

    def user(self) -> str:
        """The user of kubectl, as the API server names it; the Pod does not know."""
        done = self.run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
        return done.stdout.decode(errors="replace").strip() or "a user of kubectl"

    def leader(self) -> str:
        """The name of the leader's Pod; ends the command without one."""
        holder, pods = self.holder(), self.pods()
        found = [name_of(pod) for pod in pods if is_held_by(pod, holder)]
        if not found:
            where = f"Lease {self.lease} is held by {holder!r}" if holder else "no replica leads"
            fail([f"{where}, and none of {len(pods)} Pods with {self.selector} is that replica"])
        return found[0]


def name_of(pod: Json) -> str:
    return text(mapping(pod.get("metadata")).get("name"))


def is_held_by(pod: Json, holder: str) -> bool:
    """An identity is a host name and a random part; in the host's network, that of the node."""
    host = holder.rpartition("_")[0]
    names = (name_of(pod), text(mapping(pod.get("spec")).get("nodeName")))
    return bool(host) and host.partition(".")[0] in {name.partition(".")[0] for name in names}


@click.group(
    cls=Group,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    epilog=example("kubectl ccm status --all-replicas", "kubectl ccm explain node worker-1"),
)
@click.option("-n", "--namespace", default="kube-system", show_default=True, help="Of the Pods.")
@click.option("--context", default="", help="Context of the kubeconfig.")
@click.option("--kubeconfig", default="", help="Kubeconfig file, as kubectl takes it.")
@click.option("--lease", default="cloud-controller-manager", show_default=True, help="Its name.")
@click.option(
    *("-l", "--selector"),
    default="app.kubernetes.io/name=ccm-supervisor",
    show_default=True,
    help="Labels of the Pods.",
)
@click.pass_context
def main(
    ctx: click.Context, /, namespace: str, context: str, kubeconfig: str, lease: str, selector: str
) -> None:
    """Ask and operate the ccm-supervisor that leads, from anywhere that kubectl works.

    It needs `get` on the Lease, `list` on Pods, and `create` on `pods/exec`.
    """
    given = {"--namespace": namespace, "--context": context, "--kubeconfig": kubeconfig}
    flags = [f"{flag}={value}" for flag, value in given.items() if value]
    ctx.obj = Cluster(flags, lease, selector)


def _on_leader(name: str, text: str, call: str) -> None:
    settings = {"ignore_unknown_options": True, "help_option_names": []}

    @main.command(name, help=text, context_settings=settings, epilog=example(f"kubectl ccm {call}"))
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_obj
    def command(cluster: Cluster, words: tuple[str, ...]) -> None:
        if name == "status" and "--all-replicas" in words:
            show_replicas(cluster)
            return
        if words[:1] == ("freeze",) and not any(word.startswith("--by") for word in words):
            words = (*words, f"--by={cluster.user()}")
        if name == "explain":
            explain_certificates(cluster, words)
        terminal = ("-it",) if sys.stdin.isatty() and sys.stdout.isatty() else ()
        current = cluster.exec_words(cluster.leader(), *terminal)
        sys.exit(subprocess.run(("kubectl", *cluster.flags, *current, name, *words)).returncode)


_on_leader("status", "Show the leader's status; --all-replicas: one row each.", "status")
_on_leader("explain", "Show the leader's last decision about an object.", "explain svc/web")
_on_leader("restart", "Have a new process take over a worker's work.", "restart node-0")
_on_leader("deletions", "Show, freeze or allow deletions of Nodes.", "deletions freeze")


def explain_certificates(cluster: Cluster, words: Sequence[str]) -> None:
    """Show for which certificates a Node's kubelet waits, if the user may see that."""
    from ccm.checks.serving_certificates import explain_requests

    given = [word for word in words if not word.startswith("-")]
    kind, _, name = "/".join(given[:2]).partition("/")
    if kind.lower() not in ("node", *EXPLAINED["node"].short_names):
        return
    done = [cluster.run("get", *what, "-o", "json") for what in (("csr",), ("node", name))]
    if not any(each.returncode for each in done):
        requests, node = (orjson.loads(each.stdout) for each in done)
        say(*explain_requests(objects(requests.get("items")), Node(node)), err=True)


def show_replicas(cluster: Cluster) -> None:
    """One row a replica, the leader first; before them its worst problem, after them the Lease."""
    from ccm.cli.fitting import Column, Rows, Whole

    lease, pods = cluster.read("lease", cluster.lease), cluster.pods()
    spec = mapping(lease.get("spec"))
    holder = text(spec.get("holderIdentity"))
    pods.sort(key=lambda pod: (not is_held_by(pod, holder), name_of(pod)))
    with ThreadPoolExecutor() as threads:
        replicas = [*threads.map(lambda pod: status_of(cluster, pod), pods)]
    if replicas and not isinstance(replicas[0], str):
        for problem in replicas[0]["problems"][:1]:
            say(f"{problem['severity']}: {problem['sentence']}")
    rows = [[*_row(pod, status)] for pod, status in zip(pods, replicas, strict=True)]
    columns = [
        Column("pod"),
        Column("role"),
        Column("problems", is_number=True),
        Column("node", from_width=80),
        Column("version", from_width=80),
        Column("workers", from_width=80),
    ]
    show(Whole([Rows("Replicas", columns, rows)]))
    say(
        f"Lease {cluster.lease}: held by {holder or 'no replica'} since {spec.get('acquireTime')},"
        f" {spec.get('leaseTransitions', 0)} changes of leader"
    )


def status_of(cluster: Cluster, pod: Json) -> Status | str:
    """A replica's status, or why there is none."""
    done = cluster.run(*cluster.exec_words(name_of(pod)), "status", "-o", "json")
    if done.returncode:
        return done.stderr.decode(errors="replace").strip()
    return conform(Status, orjson.loads(done.stdout))


def _row(pod: Json, status: Status | str) -> Iterator[str]:
    yield name_of(pod)
    if isinstance(status, str):
        yield f"no answer: {status}"
        yield from ("-", text(mapping(pod.get("spec")).get("nodeName")), "-", "-")
        return
    yield "leader" if status["leader"]["is_leader"] else "standby"
    yield str(len(status["problems"]))
    yield text(mapping(pod.get("spec")).get("nodeName"))
    yield status["version"]
    workers = status["workers"]
    running = sum(worker["state"] in ("running", "standby", "skipped") for worker in workers)
    yield f"{running} of {len(workers)} up"


def plugin() -> None:
    """The command `kubectl-ccm`, which kubectl calls for `kubectl ccm`."""
    with reported():
        main(prog_name="kubectl ccm")
