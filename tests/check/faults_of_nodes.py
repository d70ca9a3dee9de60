"""Faults in Nodes and Services, and in what the cloud says of them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from ccm.checks.nodes import services, waiting
from ccm.model.objects import Json
from ccm.sandbox.cloud.faults import Fault, Kind
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.kubelets import registration
from ccm.sandbox.workload import SERVICE
from tests.check.row import Ground, Row, flags
from tests.check.world import CLUSTER_CIDR
from tests.proc.running import wait_for

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
AT_ONCE = -60.0  # seconds: whatever waits, waits too long


def nodes(ground: Ground, *bodies: Json) -> Iterator[Sequence[str]]:
    """Nodes that are there for a while; no machine is, so they stay as they are."""
    with ExitStack() as held:
        for body in bodies:
            held.enter_context(ground.world.with_object(NODES, body))
        yield ()


def node(name: str, pod_cidr: str = "10.244.99.0/24", provider_id: str = "") -> Json:
    """One that was initialised long ago, as far as its taints tell."""
    body = registration(name, pod_cidr)
    body["spec"] |= {"taints": [], **({"providerID": provider_id} if provider_id else {})}
    return body


def ours(name: str, pod_cidr: str) -> Json:
    """One of our cloud, which need not be asked about."""
    return node(name, pod_cidr, f"simulated://{name}")


def kubelet_without_external(ground: Ground) -> Iterator[Sequence[str]]:
    yield from nodes(ground, node("alone"))


def node_waits(ground: Ground) -> Iterator[Sequence[str]]:
    ground.patch.setattr(waiting, "LONG", AT_ONCE)
    yield from nodes(ground, registration("stranger", "10.244.99.0/24"))


def machine_of_ready_node_is_gone(ground: Ground) -> Iterator[Sequence[str]]:
    yield from nodes(ground, ours("lost", "10.244.99.0/24"))


def of_another_cloud(ground: Ground) -> Iterator[Sequence[str]]:
    yield from nodes(ground, node("foreign", provider_id="nimbus://1"))


def outside(ground: Ground) -> Iterator[Sequence[str]]:
    yield from nodes(ground, ours("outside", "192.168.7.0/24"))


def overlapping(ground: Ground) -> Iterator[Sequence[str]]:
    yield from nodes(ground, ours("twin", "10.244.2.128/25"))


def without_network(ground: Ground) -> Iterator[Sequence[str]]:
    yield from nodes(ground, ours("bare", ""))


def other_family(ground: Ground) -> Iterator[Sequence[str]]:
    yield from nodes(ground, ours("six", "fd00:244::/64"))


def service(ground: Ground, **spec: object) -> Iterator[Sequence[str]]:
    """A Service that wants a balancer."""
    body = {**SERVICE, "metadata": {"name": "planted"}, "spec": {**SERVICE["spec"], **spec}}
    path = f"{SERVICES}/planted"
    world = ground.world
    with world.with_object(SERVICES, body):
        yield ()
        world.cluster.request("DELETE", path).expect()
        wait_for("it is gone", lambda: world.cluster.request("GET", path).status == 404)


def asks_for_too_much(ground: Ground) -> Iterator[Sequence[str]]:
    yield from service(ground, sessionAffinity="ClientIP")


def class_of_nobody(ground: Ground) -> Iterator[Sequence[str]]:
    ground.patch.setattr(services, "LONG", AT_ONCE)
    yield from service(ground, loadBalancerClass="example.com/nobody")


def no_balancer(ground: Ground) -> Iterator[Sequence[str]]:
    """The cloud makes none, for a while."""
    ground.patch.setattr(services, "LONG", AT_ONCE)
    world = ground.world
    fault = Fault(Kind.ERROR, "CreateLoadBalancer")
    world.tell_cloud(lambda admin: admin.set_fault(fault))
    try:
        for words in service(ground):
            yield words
            world.tell_cloud(lambda admin: admin.clear_faults())
    finally:
        world.tell_cloud(lambda admin: admin.clear_faults())


def machines_of_two_names(ground: Ground) -> Iterator[Sequence[str]]:
    """Two machines have the name of a Node."""
    world = ground.world
    twins = world.tell_cloud(lambda admin: admin.add([Machine("double"), Machine("double")]))
    try:
        yield from nodes(ground, registration("double", "10.244.99.0/24"))
    finally:
        for twin in twins:
            world.tell_cloud(lambda admin, twin=twin: admin.vanish(twin.id))  # type: ignore[misc]


ROWS = (
    Row(
        "a kubelet runs without --cloud-provider=external",
        "kubelets",
        "never initialised: alone",
        "start their kubelets with --cloud-provider=external",
        kubelet_without_external,
        also=frozenset({"machines"}),
    ),
    Row(
        "a node waits although somebody leads",
        "waiting-nodes",
        "leads: stranger",
        "see the Events of these Nodes",
        node_waits,
        also=frozenset({"machines"}),
    ),
    Row(
        "the cloud has no machine of a node's name",
        "machines",
        "the cloud knows no machine of these names: stranger",
        "kubelet --hostname-override",
        lambda ground: nodes(ground, registration("stranger", "10.244.99.0/24")),
    ),
    Row(
        "the machine of a Ready node is gone",
        "machines",
        "the cloud says that the machines of Ready Nodes are gone: lost",
        "correct account, project or region in --cloud-config",
        machine_of_ready_node_is_gone,
    ),
    Row(
        "two machines have a node's name",
        "machines",
        "no clear answer about double: 2 machines are named double",
        "see what the cloud has under these names",
        machines_of_two_names,
        state="warning",
    ),
    Row(
        "a node is of another cloud",
        "provider-ids",
        "3 nodes of simulated, 1 node of nimbus",
        "let a controller of their cloud look after them",
        of_another_cloud,
        state="warning",
    ),
    Row(
        "a pod network is outside the cluster's",
        "pod-networks",
        f"outside --cluster-cidr {CLUSTER_CIDR}: 192.168.7.0/24 of outside",
        "give --cluster-cidr as kube-controller-manager has it",
        outside,
        also=frozenset({"machines"}),
    ),
    Row(
        "pod networks overlap",
        "pod-networks",
        "10.244.2.0/24 of vm-2 and 10.244.2.128/25 of twin",
        "let all but one of these Nodes register again",
        overlapping,
        also=frozenset({"machines"}),
    ),
    Row(
        "a node has no pod network",
        "pod-networks",
        "no pod network, so no route: bare",
        "--allocate-node-cidrs=true",
        without_network,
        also=frozenset({"machines"}),
    ),
    Row(
        "a pod network is of another IP family",
        "pod-networks",
        "has no IPv6 network, nodes have: fd00:244::/64 of six",
        "add the cluster's IPv6 network to --cluster-cidr",
        other_family,
        also=frozenset({"machines"}),
    ),
    Row(
        "--cluster-cidr has a family that no node has",
        "pod-networks",
        "--cluster-cidr has fd00:244::/48, and no node an IPv6 pod network",
        "or leave this network out",
        flags(f"--cluster-cidr={CLUSTER_CIDR},fd00:244::/48"),
        state="warning",
    ),
    Row(
        "a Service asks for what the cloud cannot do",
        "services",
        "this cloud's load balancers cannot do session affinity",
        "change the Service as it says",
        asks_for_too_much,
    ),
    Row(
        "a Service is of a class that nobody serves",
        "services",
        "of a loadBalancerClass that is not ours (example.com/nobody)",
        "--load-balancer-classes=example.com/nobody",
        class_of_nobody,
        state="warning",
    ),
    Row(
        "a Service waits although somebody leads",
        "services",
        "leads: default/planted",
        "see the Events of these Services",
        no_balancer,
    ),
)
