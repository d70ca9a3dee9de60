"""The image in Pods of true kubelets, as the pages say: Pods, Services and routes with packets.

One cluster of three nodes; the tests run in their order, and each finds the product running.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ccm.cli.manifests import IMAGE
from ccm.manifests.rbac import APP_NAME
from ccm.manifests.workload import USER
from ccm.model.objects import SHUTDOWN_TAINT, UNINITIALIZED_TAINT
from release.oci import DEFAULT_REGISTRY
from release.tree import run
from tests.docs.pages import DOCS, script
from tests.e2e.test_image import image
from tests.integration.chart.helm import as_values, template
from tests.labs.kubelets.lab import LEASE, NODES, Lab, started
from tests.support.deadlines import slowness
from tests.support.running import Json, long, wait_for

__all__ = ["image"]

pytestmark = [pytest.mark.real, pytest.mark.alone, long, pytest.mark.timeout(900)]

READY_IN = 15.0  # seconds, after `kubectl apply`
HANDED_OVER_IN = 1.0  # seconds without a leader when one ends in order
LOST_FOR = 16.0  # seconds without a leader when one is lost: its lease has to pass
PRESSURES = {f"{name}Pressure": f"{name.lower()}-pressure" for name in ("Disk", "Memory", "PID")}
PREVIOUS = f"{DEFAULT_REGISTRY}/ccm-supervisor:previous"
IMPORTED = f"{DEFAULT_REGISTRY}/{IMAGE}"
TAG = ("ctr", "--namespace=k8s.io", "images", "tag", IMPORTED, PREVIOUS)
SOCKET = "/run/containerd/containerd.sock"
IMPORT = f"ctr -a {SOCKET} -n k8s.io images import --local"
SYSTEM = ("-n", "kube-system")
EDGE = "ccm-edge"
OURS = (*SYSTEM, "-l", f"app.kubernetes.io/name={APP_NAME}")
CODE = "import os; print(os.getuid(), open('/proc/mounts').readline().split()[3][:2])"
EXAMINE = ("python3", "-c", CODE)


@pytest.fixture(scope="module")
def lab(image: tuple[Path, Path]) -> Iterator[Lab]:
    with started() as lab:
        for name in NODES:
            lab.kubectl("label", "node", name, "node-role.kubernetes.io/control-plane=")
        lab.run("import", str(image[0]))
        for name in NODES:
            lab.run("exec", name, "--", *TAG)
        config = f"--from-file=cloud.conf={lab.state}/cloud.conf"
        lab.kubectl(*SYSTEM, "create", "secret", "generic", "cloud-config", config)
        yield lab


def command_of(page: str) -> str:
    """How this page imports the image by hand."""
    lines = script(DOCS / "install" / f"{page}.md", "The image").splitlines()
    return next(line for line in lines if line.startswith("ctr "))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command_of("k3s"), id="k3s"),
        pytest.param(command_of("k0s"), id="k0s"),
        pytest.param(f"{IMPORT} --all-platforms dist/X", id="folder-of-k3s"),
        pytest.param(f"{IMPORT} dist/X", id="folder-of-k0s"),
    ],
)
def test_an_imported_image_is_the_one_that_the_kubelet_looks_for(
    command: str, lab: Lab, image: tuple[Path, Path], tmp_path: Path
) -> None:
    """By hand, and as a distribution does with its folder; before, the node had nothing of it."""
    node, words = NODES[0], command.split()
    on_node = partial(lab.run, "exec", node, "--")
    on_node("ctr", "-n", "k8s.io", "images", "rm", "--sync", IMPORTED, PREVIOUS)
    socket = words[words.index("-a") + 1]
    on_node(
        "sh", "-c", f"mkdir -p {Path(socket).parent}; test -e {socket} || ln -s {SOCKET} {socket}"
    )
    on_node(*(str(image[0]) if word.startswith("dist/") else word for word in words))
    on_node(*TAG)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "imported"},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "version",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["ccm-supervisor", "version"],
                }
            ],
        },
    }
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    wait_for("the Pod is admitted", lambda: lab.tried("apply", "-f", str(file)))
    phase = ("get", "pod", "imported", "-o", "jsonpath={.status.phase}")
    wait_for("it has run", lambda: lab.tried(*phase) == "Succeeded")
    lab.kubectl("delete", "pod", "imported", "--wait")


def daemonset(lab: Lab, directory: Path, kind: str = "daemonset") -> str:
    command = (sys.executable, "-m", "ccm.cli.main", "manifests", f"--kind={kind}", "--")
    return run(*command, *lab.flags())


def deployment(lab: Lab, directory: Path) -> str:
    return daemonset(lab, directory, "deployment")


def chart(lab: Lab, directory: Path) -> str:
    return template(directory, {"flags": as_values(lab.flags()), "kind": "deployment"})


def pods(lab: Lab) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in lab.get(*OURS, "pods")["items"]}


def are_ready(lab: Lab, count: int) -> bool:
    ready = [pod for pod in pods(lab).values() if is_ready(pod)]
    return len(ready) == len(pods(lab)) == count


def is_ready(thing: Json) -> bool:
    """A Pod or a Node."""
    found = {one["type"]: one["status"] for one in thing["status"].get("conditions", ())}
    return found.get("Ready") == "True" and not thing["spec"].get("taints")


def leader(lab: Lab) -> str:
    """The node of the Pod that leads; empty when none does."""
    holder = lab.get(*LEASE)["spec"].get("holderIdentity") or ""
    return next((name for name in NODES if holder.startswith(name)), "")


@pytest.mark.parametrize(("render", "count"), [(daemonset, 3), (deployment, 2), (chart, 2)])
def test_pods_of_the_image_are_ready_soon_and_do_their_work(
    render: Callable[[Lab, Path], str], count: int, lab: Lab, tmp_path: Path
) -> None:
    """As docs/kubernetes.md says: archive on the nodes, Secret, objects; one kind after another."""
    lab.kubectl(*OURS, "delete", "daemonset,deployment", "--cascade=foreground", "--wait")
    add_taints(lab)
    objects = render(lab, tmp_path)
    began = time.monotonic()
    lab.kubectl("apply", "-f", "-", stdin=objects)
    wait_for("the Pods are ready", lambda: are_ready(lab, count))
    took = time.monotonic() - began
    wait_for("one leads", lambda: leader(lab))
    network_add_on(lab, "start")
    wait_for("Nodes are ready", lambda: all(map(is_ready, lab.get("nodes")["items"])))
    assert lab.cloud("state")["routes"]
    # The API server trusts only serving certificates that kubelets asked for and someone approved.
    lab.run("approve")
    for name, pod in pods(lab).items():
        assert pod["spec"]["containers"][0]["image"] == IMAGE
        examine = (*SYSTEM, "exec", name, "--", *EXAMINE)
        examined = wait_for(f"exec in {name}", partial(lab.tried, *examine))
        assert examined.split() == [str(USER), "ro"]
        assert "supervisor" in lab.kubectl(*SYSTEM, "logs", name)
    if render is not chart:
        stays_in_place(lab)
        wait_for("the Pods are ready again", lambda: are_ready(lab, count))
    print(f"{render.__name__}: ready after {took:.1f} s")
    assert took < READY_IN * slowness()


def add_taints(lab: Lab) -> None:
    """All nodes get what only the product takes away, and what waits for it: a network add-on."""
    for name in NODES:
        for taint in (UNINITIALIZED_TAINT, SHUTDOWN_TAINT):
            lab.kubectl("taint", "--overwrite", "node", name, f"{taint}=true:NoSchedule")
        set_conditions(lab, name, NetworkUnavailable="True")
    network_add_on(lab, "stop")
    for taint in ("network-unavailable", "not-ready"):
        wait_tainted(lab, taint, *NODES)


def set_conditions(lab: Lab, name: str, **statuses: str) -> None:
    conditions = [{"type": kind, "status": status} for kind, status in statuses.items()]
    patch = json.dumps({"status": {"conditions": conditions}})
    lab.kubectl("patch", "node", name, "--subresource=status", f"--patch={patch}")


def network_add_on(lab: Lab, action: str) -> None:
    """On all nodes: without its file the kubelet is not ready."""
    for name in NODES:
        on = f"{lab.state}/{name}/cni/10-lab.conflist"
        places = (on, f"{on}.off") if action == "stop" else (f"{on}.off", on)
        move = f"until mv {' '.join(places)}; do sleep 0.1; done"
        lab.run("exec", name, "--", "sh", "-c", move)


def wait_tainted(lab: Lab, taint: str, *names: str) -> None:
    """Until these nodes have a taint of kube-controller-manager's."""

    def are_tainted() -> bool:
        nodes = lab.get("nodes")["items"]
        found = {
            node["metadata"]["name"]
            for node in nodes
            for one in node["spec"].get("taints", ())
            if one["key"] == f"node.kubernetes.io/{taint}"
        }
        return found >= {*names}

    wait_for(f"{names} are {taint}", are_tainted)


def stays_in_place(lab: Lab) -> None:
    """The leader leads on, on a node that has each taint which keeps Pods away, or evicts them."""
    node = leader(lab)
    stop, go_on = (("sh", "-c", f"kill -{name} $(pidof kubelet)") for name in ("STOP", "CONT"))
    with lab.leaders() as leaders:
        lab.run("exec", node, "--", *stop)
        try:
            set_conditions(lab, node, **dict.fromkeys(PRESSURES, "True"))
            lab.kubectl("cordon", node)
            for taint in (*PRESSURES.values(), "unschedulable", "unreachable"):
                wait_tainted(lab, taint, node)
        finally:
            lab.kubectl("uncordon", node)
            lab.run("exec", node, "--", *go_on)
        wait_for("no taint is left", lambda: is_ready(lab.get("node", node)))
    assert [term[0] for term in leaders.terms] == [leaders.terms[0][0]], leaders.terms


@pytest.fixture(scope="module")
def url(lab: Lab) -> str:
    return lab.serve()


def test_requests_go_through_the_balancer_to_pods_on_other_nodes(lab: Lab, url: str) -> None:
    """Each backend passes on what is for Pods elsewhere, over the routes that we made."""
    traffic = lab.requests(url, 150)
    assert not traffic.failed
    assert len(traffic.by) == 2


def test_a_rolling_update_under_traffic_and_churn_is_not_noticed(lab: Lab, url: str) -> None:
    """From one image to another, while Pods and labels of Nodes come and go."""
    before = lab.cloud("counters")["writes"]
    with lab.leaders() as leaders, lab.traffic(url) as traffic, lab.churn():
        container = f"deployment/{APP_NAME}", f"{APP_NAME}={PREVIOUS}"
        lab.kubectl(*SYSTEM, "set", "image", *container)
        status = ("rollout", "status", f"deployment/{APP_NAME}", "--timeout=120s")
        lab.kubectl(*SYSTEM, *status, limit=150)
        wait_for("one leads", lambda: leader(lab))
    print(f"rolling update: without a leader {leaders.longest_gap:.2f} s, {traffic}")
    assert {pod["spec"]["containers"][0]["image"] for pod in pods(lab).values()} == {PREVIOUS}
    assert not traffic.failed
    assert lab.cloud("counters")["writes"] == before
    assert leaders.longest_gap < HANDED_OVER_IN * slowness()


def test_two_releases_of_the_chart_run_in_one_cluster(lab: Lab, tmp_path: Path) -> None:
    """Each with a name, a Lease and a port of its own, as the chart's page shows."""
    own = {
        "leader-elect-resource-name": EDGE,
        "secure-port": 10268,
        "controllers": ["volume-label"],
    }
    flags = as_values(lab.flags()) | own
    values = {"flags": flags, "kind": "deployment", "nameOverride": EDGE}
    before = leader(lab)
    lab.kubectl("apply", "-f", "-", stdin=template(tmp_path, values))
    lab.kubectl(*SYSTEM, "rollout", "status", f"deployment/{EDGE}", "--timeout=120s", limit=150)
    lease = (*SYSTEM, "get", "lease", EDGE, "-o", "jsonpath={.spec.holderIdentity}")
    wait_for("the second release leads its own Lease", lambda: lab.tried(*lease))
    assert leader(lab) == before
    assert are_ready(lab, 2)
    lab.kubectl(*SYSTEM, "delete", "deployment", EDGE, "--cascade=foreground", "--wait")
    assert leader(lab) == before


def test_the_leaders_eviction_leaves_no_one_without_a_leader_for_long(lab: Lab) -> None:
    node = leader(lab)
    name = next(name for name, pod in pods(lab).items() if pod["spec"]["nodeName"] == node)
    before = lab.cloud("counters")["writes"]
    with lab.leaders() as leaders:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/kube-system/pods/{name}/eviction"
        lab.kubectl("create", f"--raw={path}", "-f", "-", stdin=json.dumps(eviction))
        wait_for("another one leads", lambda: leader(lab) not in ("", node))
    print(f"eviction: without a leader {leaders.longest_gap:.2f} s")
    assert leaders.longest_gap < HANDED_OVER_IN * slowness()
    assert lab.cloud("counters")["writes"] == before
    wait_for("both are ready again", lambda: are_ready(lab, 2))


def test_the_loss_of_the_leaders_node_costs_the_time_of_its_lease(lab: Lab) -> None:
    node = wait_for("one leads", lambda: leader(lab))
    before = lab.cloud("counters")["writes"]
    with lab.leaders() as leaders:
        lab.run("power", node, "off")
        wait_for("another one leads", lambda: leader(lab) not in ("", node))
    print(f"power loss: without a leader {leaders.longest_gap:.2f} s")
    assert leaders.longest_gap < LOST_FOR * slowness()
    assert lab.cloud("counters")["writes"] == before
