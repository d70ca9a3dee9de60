"""What is counted: from where to where, what is background, and how many files there may be.

Files are named by their path in the repository, functions by their qualified name. When a function
is renamed, this is the file to change; a test says which entries no longer exist.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Point:
    """A function is called, or returns, with these words in its texts.

    `{name}` in a word stands for the name of the object that is followed.
    """

    file: str
    function: str
    words: tuple[str, ...] = ()
    event: Literal["call", "return"] = "call"


@dataclass(frozen=True, slots=True)
class Walk:
    """The way of one new object of `kind`, or a part of it, and the most files it may have."""

    title: str
    kind: Literal["Node", "Service"]
    start: Point
    end: Point
    budget: int


RECEIVED = ("ccm/http.py", "HttpConnection.data_received")
ANSWERED = ("ccm/kube/client.py", "Kube.request")
GATE = ("ccm/cloud/gate.py", "WorkerGate.call")

WALKS = (
    Walk(
        "Node: from the watch event of a tainted Node to the answer of the worker's first patch",
        "Node",
        Point(*RECEIVED, ("ADDED", '"{name}"')),
        Point(*ANSWERED, ("PATCH", "/nodes/{name}"), "return"),
        budget=28,
    ),
    Walk(
        "Cloud call: from the provider's call of the gate to the answer that comes out of it",
        "Node",
        Point(*GATE),
        Point(*GATE, event="return"),
        budget=14,
    ),
    Walk(
        "Service: from the watch event of a LoadBalancer to the answer of the patch of its address",
        "Service",
        Point(*RECEIVED, ("ADDED", '"{name}"')),
        Point(*ANSWERED, ("PATCH", "/services/{name}/status", "/status/loadBalancer"), "return"),
        budget=32,
    ),
)

BACKGROUND = {
    (
        "ccm/supervisor/leader_election.py",
        "LeaderElector.run",
    ): "renews lease and permits",
    ("ccm/supervisor/children.py", "Children.run"): "looks after the workers once a second",
    ("ccm/supervisor/tokens.py", "SharedToken.run"): "looks for a new token once a second",
    ("ccm/supervisor/systemd.py", "update_status"): "tells systemd twice a second",
    (
        "ccm/supervisor/metrics_collector.py",
        "WorkerCounters.update",
    ): "adds up counts",
    ("ccm/bus/sockets.py", "Permission.renew"): "takes in a permit",
    ("ccm/kube/events.py", "EventRecorder.run"): "sends Events behind the work",
    ("workers/runner.py", "Runner._beat"): "heartbeat",
    ("workers/queue.py", "WorkQueue._ripen"): "timer of keys that wait",
    ("workers/node/passes.py", "MonitorPass.run"): "passes over nodes that are not ready",
    ("workers/node/passes.py", "RefreshPass.run"): "passes over all nodes",
}
"""Functions that run anyway, whatever else happens. What they call is not counted either."""
