"""All replicas in one view: found as Pods, or named by URL, and asked through kubectl."""

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from ccm.cli.reporting import fail, say, show
from ccm.limited_process import LimitedProcess
from ccm.model.conform import conform
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.status import LeaseHolder, Status
from ccm.printable import printable

CONTAINER = "ccm-supervisor"
NAMESPACE, LEASE = "kube-system", "cloud-controller-manager"
ANSWER_TIMEOUT = 30.0  # seconds; a Pod of any kubelet may have the labels of a replica
MAX_ANSWER = 64 << 20  # bytes
SELECTOR = "app.kubernetes.io/name=ccm-supervisor"


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
            process = LimitedProcess(
                command, timeout=ANSWER_TIMEOUT, most=MAX_ANSWER, process_group=None
            )
        except FileNotFoundError:
            fail(["kubectl is not on PATH; install it"])
        printed, errors = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, printed, errors)

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
        found = [pod for pod in pods if any(_likeness(pod, holder))]
        if not found:
            where = f"Lease {self.lease} is held by {holder!r}" if holder else "no replica leads"
            fail([f"{where}, and none of {len(pods)} Pods with {self.selector} is that replica"])
        return name_of(max(found, key=lambda pod: _likeness(pod, holder)))


def name_of(pod: Json) -> str:
    return text(mapping(pod.get("metadata")).get("name"))


def _likeness(pod: Json, holder: str) -> tuple[bool, ...]:
    """In what the Pod is like the holder of a Lease, the surest first.

    An identity is a host name and a random part; in the host's network, that of the node. Any
    kubelet can run a Pod of any name, but on its own Node only.
    """
    host = holder.rpartition("_")[0]
    names = (text(mapping(pod.get("spec")).get("nodeName")), name_of(pod))
    likeness = ((name == host, _first_label(name) == _first_label(host)) for name in names)
    return tuple(bool(host) and is_like for each in likeness for is_like in each)


def _first_label(name: str) -> str:
    return name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Replica:
    """A process on a host or in a Pod, and what kubectl does to read its status."""

    name: str
    node: str
    words: Sequence[str]

    def status(self, cluster: Cluster) -> Status | str:
        """Its status, or why there is none."""
        done = cluster.run(*self.words)
        if done.returncode:
            return done.stderr.decode(errors="replace").strip()
        try:
            return conform(Status, orjson.loads(done.stdout))
        except orjson.JSONDecodeError:
            return "it is not a status"


def show_replicas(cluster: Cluster, urls: Sequence[str] = (), authority: str = "") -> None:
    """One row a replica, the leader first; before them its worst problem, after them who led.

    Without URLs, the replicas are the Pods. `authority` is a file with who signed for the URLs.
    """
    from ccm.cli.fitting import Column, Rows, Whole

    replicas = [_at_url(url, authority) for url in urls] or [
        _in_pod(cluster, pod) for pod in cluster.pods()
    ]
    if not replicas:
        fail([f"no Pods with {cluster.selector}; name the replicas on hosts: --replica URL"])
    with ThreadPoolExecutor() as threads:
        found = [*threads.map(lambda replica: replica.status(cluster), replicas)]
    pairs = sorted(zip(replicas, found, strict=True), key=_importance)
    answers = [status for _, status in pairs if not isinstance(status, str)]
    for problem in (problem for status in answers[:1] for problem in status["problems"][:1]):
        say(f"{problem['severity']}: {problem['sentence']}")
    for replica, status in pairs:
        if isinstance(status, str):
            say(f"No answer from {replica.name}: {status}")
    columns = [
        Column("replica"),
        Column("role"),
        Column("problems", is_number=True),
        Column("node", from_width=80),
        Column("version", from_width=80),
        Column("workers", from_width=80),
    ]
    leaders = [Column("leader"), Column("since"), Column("changes", is_number=True)]
    rows = [[*map(printable, _row(replica, status))] for replica, status in pairs]
    led = [[*map(printable, row)] for row in _history(answers)]
    parts = [Rows("Replicas", columns, rows), Rows("Leaders, latest first", leaders, led)]
    show(Whole(parts))


def _in_pod(cluster: Cluster, pod: Json) -> Replica:
    name, node = name_of(pod), text(mapping(pod.get("spec")).get("nodeName"))
    return Replica(name, node, (*cluster.exec_words(name), "status", "-o", "json"))


def _at_url(url: str, authority: str) -> Replica:
    name = urlsplit(url).hostname or url
    trusted = (f"--certificate-authority={authority}",) if authority else ()
    return Replica(name, name, ("get", "--raw=/statusz", f"--server={url}", *trusted))


def _importance(pair: tuple[Replica, Status | str]) -> tuple[bool, str]:
    replica, status = pair
    is_leader = not isinstance(status, str) and status["leader"]["is_leader"]
    return not is_leader, replica.name


def _row(replica: Replica, status: Status | str) -> Iterator[str]:
    yield replica.name
    if isinstance(status, str):
        yield from ("no answer", "-", replica.node, "-", "-")
        return
    yield "leader" if status["leader"]["is_leader"] else "standby"
    yield str(len(status["problems"]))
    yield replica.node
    yield status["version"]
    workers = status["workers"]
    running = sum(worker["state"] in ("running", "standby", "skipped") for worker in workers)
    yield f"{running} of {len(workers)} up"


def _history(answers: Iterable[Status]) -> Iterator[Sequence[str]]:
    """Who led as far back as any replica saw it, latest first."""
    seen: dict[tuple[int, str], LeaseHolder] = {}
    for holder in (holder for status in answers for holder in status["leader"]["history"]):
        seen[holder["transitions"], holder["since"]] = holder
    for _, holder in sorted(seen.items(), reverse=True):
        yield holder["identity"], holder["since"], str(holder["transitions"])
