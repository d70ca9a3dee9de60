"""Services that want a load balancer, and what became of them."""

from ccm.cloud.testkit.harness import service
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.digitalocean.lb.annotations import PREFIX
from tests.labs.digitalocean.server import DigitalOcean


def web(
    annotations: dict[str, str] | None = None, ip: str = "", hostname: str = "", **spec: object
) -> Service:
    """A Service, published with this address or host name."""
    named = {key if "/" in key else PREFIX + key: v for key, v in (annotations or {}).items()}
    made = service("web", named, **spec)
    entry = {"ip": ip} if ip else {"hostname": hostname}
    made.raw["status"] = {"loadBalancer": {"ingress": [entry] if ip or hostname else []}}
    return made


NAME = web().default_balancer_name


def only(do: DigitalOcean) -> Json:
    (record,) = do.balancers.values()
    return record
