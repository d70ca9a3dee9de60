"""Faults in Nodes and Services, and in what the cloud says of them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from ccm.checks import nodes as node_checks
from ccm.checks import services as service_checks
from ccm.model.objects import Json
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.kubelets import registration
from ccm.sandbox.workload import SERVICE
from tests.check.planting import Ground, Plant, fails, flags, planted, warns
from tests.check.world import CLUSTER_CIDR

SERVICES = "/api/v1/namespaces/default/services"
without_machine = partial(fails, also=frozenset({"machines"}))


@planted
def nodes(ground: Ground, *bodies: Json) -> Iterator[Sequence[str]]:
    """Nodes that are there for a while; no machine is, so they stay as they are."""
    with ExitStack() as held:
        for body in bodies:
            held.enter_context(ground.world.with_object("/api/v1/nodes", body))
        yield ()


def node(name: str, pod_cidr: str = "10.244.99.0/24", provider_id: str = "") -> Json:
    """One that was initialized long ago, as far as its taints tell."""
    body = registration(name, pod_cidr)
    body["spec"] |= {"taints": [], **({"providerID": provider_id} if provider_id else {})}
    return body


def ours(name: str, pod_cidr: str) -> Json:
    """One of our cloud, which need not be asked about."""
    return node(name, pod_cidr, f"simulated://{name}")


@planted
def service(ground: Ground, /, **spec: object) -> Iterator[Sequence[str]]:
    """A Service that wants a load balancer."""
    body = {**SERVICE, "metadata": {"name": "planted"}, "spec": {**SERVICE["spec"], **spec}}
    with ground.world.with_object(SERVICES, body):
        yield ()


@planted
def at_once(ground: Ground, plant: Plant) -> Iterator[Sequence[str]]:
    """Whatever waits has waited for an hour."""
    for checks in (node_checks, service_checks):
        ground.patch.setattr(checks, "age_of", lambda waiting, now: 3600.0)
    with plant(ground) as words:
        yield words


@planted
def no_balancer(ground: Ground) -> Iterator[Sequence[str]]:
    """The cloud creates none, for a while."""
    world, fault = ground.world, CloudFault(CloudFaultKind.ERROR, "CreateLoadBalancer")
    with world.cloud_fault(fault), service()(ground) as words:
        yield words
        world.tell_cloud(lambda admin: admin.clear_faults())  # before the Service is deleted


@planted
def machines_of_two_names(ground: Ground) -> Iterator[Sequence[str]]:
    """Two machines have the name of a Node."""
    world = ground.world
    twins = world.tell_cloud(lambda admin: admin.add([Machine("double"), Machine("double")]))
    try:
        with nodes(registration("double", "10.244.99.0/24"))(ground) as words:
            yield words
    finally:
        for twin in twins:
            world.tell_cloud(lambda admin, twin=twin: admin.vanish(twin.id))  # type: ignore[misc]


ROWS = (
    without_machine(
        "a kubelet runs without --cloud-provider=external",
        "kubelets: never initialized: alone",
        "start their kubelets with --cloud-provider=external",
        nodes(node("alone")),
    ),
    without_machine(
        "a node waits although somebody leads",
        "uninitialized-nodes: leads: stranger",
        "see the Events of these Nodes",
        at_once(nodes(registration("stranger", "10.244.99.0/24"))),
    ),
    fails(
        "the cloud has no machine of a node's name",
        "machines: the cloud knows no machine of these names: stranger",
        "kubelet --hostname-override",
        nodes(registration("stranger", "10.244.99.0/24")),
    ),
    fails(
        "the machine of a Ready node is gone",
        "machines: the cloud says that the machines of Ready Nodes are gone: lost",
        "correct account, project or region in --cloud-config",
        nodes(ours("lost", "10.244.99.0/24")),
    ),
    warns(
        "two machines have a node's name",
        "machines: no clear answer about double: 2 machines are named double",
        "see what the cloud has under these names",
        machines_of_two_names(),
    ),
    warns(
        "a node is of another cloud",
        "provider-ids: left alone: 1 node of nimbus; looked after: 3 nodes of simulated",
        "let a controller of their cloud look after them",
        nodes(node("foreign", provider_id="nimbus://1")),
    ),
    without_machine(
        "a pod network is outside the cluster's",
        f"pod-cidrs: outside --cluster-cidr {CLUSTER_CIDR}: 192.168.7.0/24 of outside",
        "give --cluster-cidr as kube-controller-manager has it",
        nodes(ours("outside", "192.168.7.0/24")),
    ),
    without_machine(
        "pod networks overlap",
        "pod-cidrs: 10.244.2.0/24 of vm-2 and 10.244.2.128/25 of twin",
        "let all but one of these Nodes register again",
        nodes(ours("twin", "10.244.2.128/25")),
    ),
    without_machine(
        "a node has no pod network",
        "pod-cidrs: no pod CIDR, so no route: bare",
        "--allocate-node-cidrs=true",
        nodes(ours("bare", "")),
    ),
    without_machine(
        "a pod network is of another IP family",
        "pod-cidrs: has no IPv6 network, nodes have: fd00:244::/64 of six",
        "add the cluster's IPv6 network to --cluster-cidr",
        nodes(ours("six", "fd00:244::/64")),
    ),
    warns(
        "--cluster-cidr has a family that no node has",
        "pod-cidrs: --cluster-cidr has fd00:244::/48, and no node an IPv6 pod CIDR",
        "or leave this network out",
        flags(f"--cluster-cidr={CLUSTER_CIDR},fd00:244::/48"),
    ),
    fails(
        "a Service asks for what the cloud cannot do",
        "services: this cloud's load balancers cannot do session affinity",
        "change the Service as it says",
        service(sessionAffinity="ClientIP"),
    ),
    warns(
        "a Service is of a class that nobody serves",
        "services: of a loadBalancerClass that is not ours (example.com/nobody)",
        "--load-balancer-classes=example.com/nobody",
        at_once(service(loadBalancerClass="example.com/nobody")),
    ),
    fails(
        "a Service waits although somebody leads",
        "services: leads: default/planted",
        "see the Events of these Services",
        at_once(no_balancer()),
    ),
)
