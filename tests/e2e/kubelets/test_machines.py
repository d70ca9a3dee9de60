"""The life of a machine and of its Node: restarts, ends, successors, maintenance."""

import pytest

from ccm.model.objects import SHUTDOWN_TAINT, Json, objects
from ccm.sandbox.kubelets import conditions
from tests.e2e.kubelets.world import NODES, OURS, World, fields, has_taint
from tests.support.kube.kubelets import Kubelets
from tests.support.running import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

EVENTS = "/api/v1/namespaces/default/events"
SERVICES = "/api/v1/namespaces/default/services"
SERVICE = {"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
CORDON = "node.kubernetes.io/unschedulable"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


async def test_a_node_deleted_under_its_kubelet_returns_with_the_kubelets_restart(
    world: World,
) -> None:
    """A kubelet registers once in its life."""
    await world.machine("returning")
    world.kubelets.join("returning")
    first = await world.initialized("returning")
    world.kubelets.kill("returning")
    world.kubelets.cluster.forget_audit()
    world.kubelets.join("returning", "--node-labels=example.com/pool=blue")
    await until("its kubelet is back", lambda: is_back(world.kubelets, "returning"))
    same = world.node("returning")
    # The labels of a Node that is there it leaves as they are.
    assert same
    assert same.raw["metadata"]["labels"] == first.raw["metadata"]["labels"]
    assert (same.uid, same.provider_id, same.addresses) == (
        first.uid,
        first.provider_id,
        first.addresses,
    )
    assert not any(agent == OURS for agent, _ in world.kubelets.node_writes())
    world.kubelets.cluster.request("DELETE", f"{NODES}/returning").expect()
    world.kubelets.kill("returning")
    world.kubelets.join("returning")
    again = await world.initialized("returning")
    assert (again.provider_id, again.addresses) == (first.provider_id, first.addresses)
    assert again.uid != first.uid


def is_back(kubelets: Kubelets, name: str) -> bool:
    """Whether the kubelet of this Node has found it registered, and gone on to renew its Lease."""
    own = [one for one in kubelets.cluster.audit() if one.user == f"system:node:{name}"]
    tries = [at for at, one in enumerate(own) if one.verb == "create" and one.code == 409]
    return bool(tries) and any(one.resource == "leases" for one in own[tries[0] :])


async def test_a_machine_that_stops_and_starts_and_one_that_ends(world: World) -> None:
    machines = [await world.machine(name) for name in ("stopped", "ended")]
    for machine in machines:
        world.kubelets.join(machine.name)
    for machine in machines:
        await world.initialized(machine.name)
    await world.admin.stop("stopped")
    await world.admin.terminate("ended")
    for machine in machines:
        world.kubelets.kill(machine.name)
    await until("the shutdown taint", lambda: has_taint(world.node("stopped"), SHUTDOWN_TAINT))
    await until("the ended machine's Node is deleted", lambda: not world.node("ended"))

    def silent() -> list[Json]:
        """What kube-controller-manager writes for a kubelet, once it misses its reports."""
        node = world.node("stopped")
        found = objects(node.status["conditions"]) if node else []
        own = [one for one in found if one["type"] != "NetworkUnavailable"]
        return own if own[-1]["status"] == "Unknown" else []

    reported = await until("the conditions are unknown", silent)
    unknown = conditions("Unknown")
    assert dict(fields(reported, "status.conditions")) == dict(fields(unknown, "status.conditions"))
    await world.admin.start("stopped")
    world.kubelets.join("stopped")

    def is_schedulable() -> bool:
        node = world.node("stopped")
        return bool(node and node.is_ready and not node.taints)

    await until("no taint is left", is_schedulable)


async def test_a_machine_that_stops_ends_and_is_replaced_under_a_ready_kubelet(
    world: World,
) -> None:
    """What the cloud says is reported; the Node of a kubelet that works is never deleted."""
    cluster = world.kubelets.cluster
    machine = await world.machine("replaced")
    world.kubelets.join("replaced")
    node = await world.initialized("replaced")
    await world.admin.stop("replaced")
    await world.refreshed()
    assert not has_taint(world.node("replaced"), SHUTDOWN_TAINT)
    assert not world.reason("replaced")
    cluster.forget_audit()
    await world.admin.terminate("replaced")
    found = "No machine for this node, which is Ready"
    await until("status shows it", lambda: world.reason("replaced").startswith(found))
    assert "the machine is gone" in (await world.explained("replaced"))["cloud"]
    events = f"{EVENTS}?fieldSelector=involvedObject.name=replaced,reason=CloudMachineNotFound"
    await until("an Event", lambda: cluster.request("GET", events).expect().body["items"])
    await until("no route", lambda: world.network("replaced") == "NoRouteCreated")
    successor = await world.machine("replaced")
    await world.refreshed()
    same = world.node("replaced")
    assert same
    assert (same.uid, same.provider_id) == (node.uid, f"simulated://{machine.id}")
    assert same.is_ready
    assert found in world.reason("replaced")
    assert not await world.routes(successor)
    world.kubelets.kill("replaced")
    cluster.request("DELETE", f"{NODES}/replaced").expect()
    world.kubelets.join("replaced")
    again = await world.initialized("replaced")
    assert again.provider_id == f"simulated://{successor.id}"
    assert await world.routes(successor) == again.pod_cidrs
    await until("status shows no more", lambda: not world.reason("replaced"))


async def test_a_drained_node_keeps_its_place_until_it_is_labelled(world: World) -> None:
    """As upstream: a cordon is the scheduler's matter, the label is the load balancers'."""
    machine, cluster = await world.machine("drained"), world.kubelets.cluster
    world.kubelets.join("drained")
    await world.initialized("drained")
    cluster.request("POST", SERVICES, SERVICE).expect()

    async def is_backend() -> bool:
        balancers = (await world.admin.state())["load_balancers"]
        return any(machine.id in one["backends"] for one in balancers)

    async def is_none() -> bool:
        return not await is_backend()

    async def written() -> list[Json]:
        """Calls for load balancers; routes of other tests' Nodes are tried again at any time."""
        rows: list[Json] = (await world.admin.counters())["rows"]
        return [row for row in rows if (row["budget"], row["caller"]) == ("write", "service")]

    await until("it is a backend", is_backend)
    cluster.forget_audit()
    before = await written(), await world.routes(machine)
    cluster.kubectl("drain", "drained", "--ignore-daemonsets")
    await until(
        "kube-controller-manager taints it", lambda: has_taint(world.node("drained"), CORDON)
    )
    await world.refreshed()
    assert not any(agent == OURS for agent, _ in world.kubelets.node_writes())
    assert (await written(), await world.routes(machine)) == before
    cluster.kubectl("label", "node", "drained", f"{EXCLUDED}=")
    await until("it is no backend", is_none)
    cluster.kubectl("label", "node", "drained", f"{EXCLUDED}-")
    cluster.kubectl("uncordon", "drained")
    await until("it is a backend again", is_backend)
    cluster.request("DELETE", f"{SERVICES}/web").expect()
    await until("no load balancer is left", is_none)
