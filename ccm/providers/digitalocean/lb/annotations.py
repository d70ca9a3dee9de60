"""The annotations of upstream's controller, with its defaults; what is wrong is refused."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ccm.errors import Refused
from ccm.model.annotations import ServiceAnnotations, whole_number
from ccm.model.service import Service

PREFIX = "service.beta.kubernetes.io/do-loadbalancer-"
DISOWN = "service.kubernetes.io/do-loadbalancer-disown"
BALANCER_ID = "kubernetes.digitalocean.com/load-balancer-id"

_KNOWN = """
    name type network network-stack protocol http-ports tls-ports http2-ports http3-port
    tls-passthrough certificate-id certificate-name hostname algorithm size-slug size-unit
    sticky-sessions-type sticky-sessions-cookie-name sticky-sessions-cookie-ttl
    redirect-http-to-https enable-proxy-protocol enable-backend-keepalive
    disable-lets-encrypt-dns-records healthcheck-port healthcheck-path healthcheck-protocol
    healthcheck-check-interval-seconds healthcheck-response-timeout-seconds
    healthcheck-unhealthy-threshold healthcheck-healthy-threshold override-health-check
    http-idle-timeout-seconds deny-rules allow-rules ip subnet-uuid
"""
KNOWN = frozenset(_KNOWN.split())
"""All of them, without their prefix."""

PRIVILEGED = ("certificate-id", "certificate-name", "ip", "subnet-uuid")
"""Those that reach what is not the Service's own; docs/providers/digitalocean.md says what."""

HTTP_ONLY = frozenset(
    name
    for name in KNOWN
    if name.startswith(("http", "tls", "certificate", "sticky", "redirect", "enable", "disable"))
) | {"protocol"}
"""Those that mean nothing to a load balancer of type REGIONAL_NETWORK."""

TRUE, FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


@dataclass(frozen=True, slots=True)
class Annotations(ServiceAnnotations):
    """Those of one Service, and how their values are read."""

    PREFIX, KNOWN = PREFIX, KNOWN

    def text(self, name: str, default: str = "") -> str:
        """An empty value does not count."""
        return str(self.service.annotations.get(PREFIX + name, "")).strip() or default

    def boolean(self, name: str) -> bool:
        """As Go reads it."""
        return read_boolean(PREFIX + name, self.text(name, "false"))

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        value = self.text(name, str(default))
        number = whole_number(value)
        if number is None or not minimum <= number <= maximum:
            self.refuse(name, f"{value!r}: give {minimum} to {maximum}")
        return number

    def one_of(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            self.refuse(name, f"{value!r}: use {', '.join(choices)}")
        return value

    def ports(self, name: str) -> list[int]:
        """A list of ports with commas."""
        return [self._port(name, item.strip()) for item in self.text(name).split(",") if item]

    def rules(self, name: str) -> Iterator[str]:
        """The rules of a firewall, as `ip:192.0.2.1,cidr:198.51.100.0/24`."""
        for item in filter(None, map(str.strip, self.text(name).split(","))):
            if not item.startswith(("ip:", "cidr:")):
                self.refuse(name, f"{item!r}: give ip:ADDRESS or cidr:NETWORK, with commas")
            yield item

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raise `Refused` for a value that makes no sense."""
        raise Refused(f"annotation {PREFIX}{name} is {why}")

    def _port(self, name: str, value: str) -> int:
        number = whole_number(value)
        if number is None or not 0 < number < 65536:
            self.refuse(name, f"{self.text(name)!r}: give numbers of ports, with commas")
        return number


def is_disowned(service: Service) -> bool:
    """Whether the load balancer is not to be touched or even looked at."""
    return read_boolean(DISOWN, str(service.annotations.get(DISOWN) or "false"))


def read_boolean(name: str, value: str) -> bool:
    """What Go's ParseBool makes of a value."""
    if value not in (*TRUE, *FALSE):
        raise Refused(f"annotation {name} is {value!r}: give true or false")
    return value in TRUE
