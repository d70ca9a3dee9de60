"""Services that want a load balancer, and what became of them."""

from collections.abc import Mapping
from typing import Any

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import port, service
from ccm.errors import RetryAfter
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.gce.lb.load_balancers import GceLoadBalancers
from tests.labs.gce.project import ZONES
from tests.labs.gce.server import Gce
from tests.providers.gce.adapter import PARTS
from tests.providers.gce.conftest import Started, host

MOST_TRIES = 20


def web(*ports: int, annotations: Mapping[str, str] | None = None, **spec: Any) -> Service:
    spec.setdefault("ports", [port(number) for number in ports or (80,)])
    return service("web", annotations, **spec)


def local(*ports: int, **spec: Any) -> Service:
    return web(*ports, externalTrafficPolicy="Local", healthCheckNodePort=32000, **spec)


def published(asked: Service, ip: str = "198.18.0.1") -> Service:
    """With this address in its status."""
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": ip}]}}
    return asked


NAME = web().default_balancer_name


def parts_of(cloud: Started) -> GceLoadBalancers:
    found = cloud.load_balancers
    assert isinstance(found, GceLoadBalancers)
    return found


async def ensure(cloud: Started, asked: Service, *nodes: Node) -> Balancer:
    """As the controller does it: it comes back while Google is at work."""
    for _ in range(MOST_TRIES):
        try:
            return await invoke(parts_of(cloud).ensure, asked, nodes)
        except RetryAfter:
            continue
    raise AssertionError("it never ends")


async def delete(cloud: Started, asked: Service) -> None:
    await parts_of(cloud).delete(asked)


def hosts(gce: Gce, count: int = 3) -> list[Node]:
    """Nodes, one a zone in turn."""
    made = [gce.cloud.add_instance(f"n-{at}", ZONES[at % 3]) for at in range(count)]
    return [host(one) for one in made]


def tagged_hosts(gce: Gce, count: int) -> list[Node]:
    """The same, of instances that have their name as a network tag."""
    nodes = hosts(gce, count)
    for node in nodes:
        gce.cloud.named("instances")[node.name]["tags"] = {"items": [node.name]}
    return nodes


def left(gce: Gce) -> list[str]:
    """What there is of load balancers."""
    return sorted(
        "/".join(path.split("/")[-2:]) for path in gce.cloud.objects if path.split("/")[-2] in PARTS
    )


def only(gce: Gce, collection: str) -> Json:
    (record,) = gce.cloud.named(collection).values()
    return record
