"""Faults in Nodes and Services, and in what the cloud says of them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from ccm.checks import nodes as node_checks
from ccm.model.objects import Json
from ccm.sandbox.kubelets import registration
from ccm.sandbox.workload import SERVICE
from tests.integration.check.planting import Ground, Plant, fails, planted, warns
from tests.integration.check.world import CLUSTER_CIDR

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
    ground.patch.setattr(node_checks, "age_of", lambda waiting, now: 3600.0)
    with plant(ground) as words:
        yield words


ROWS = (
    without_machine(
        "a kubelet runs without --cloud-provider=external",
        "kubelets: never initialized: alone",
        "start their kubelets with --cloud-provider=external",
        nodes(node("alone")),
    ),
    without_machine(
        "a node waits although someone leads",
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
    fails(
        "a Service asks for what the cloud cannot do",
        "services: this cloud's load balancers cannot do session affinity",
        "change the Service as the message suggests",
        service(sessionAffinity="ClientIP"),
    ),
)
