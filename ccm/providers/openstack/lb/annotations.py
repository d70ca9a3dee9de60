"""The annotations of upstream's controller; what cannot be honoured is said in a warning.

As upstream does, a number or a word that is wrong leaves the default in force.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ccm.model.annotations import ServiceAnnotations

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"
BALANCER_ID = "load-balancer-id"
ADDRESS = "load-balancer-address"
ON_ERROR = "on-error"

_KNOWN = """
    floating-network-id floating-subnet floating-subnet-id floating-subnet-tags class
    subnet-id network-id member-subnet-id port-id connection-limit keep-floatingip proxy-protocol
    x-forwarded-for default-tls-container-ref lb-method timeout-client-data timeout-member-data
    timeout-member-connect timeout-tcp-inspect enable-health-monitor health-monitor-delay
    health-monitor-timeout health-monitor-max-retries health-monitor-max-retries-down
    flavor-id availability-zone load-balancer-id load-balancer-address hostname node-selector
    on-error
"""
KNOWN = frozenset(_KNOWN.split())
"""All that have an effect, without their prefix; `on-error` is ours."""

PRIVILEGED = (
    "subnet-id",
    "network-id",
    "member-subnet-id",
    "port-id",
    "floating-network-id",
    "floating-subnet",
    "floating-subnet-id",
    "floating-subnet-tags",
    "default-tls-container-ref",
    "flavor-id",
    "availability-zone",
    "keep-floatingip",
)
"""Those that reach what is not the Service's own; docs/providers/openstack.md says what.

`load-balancer-id` does so or not by whose load balancer it names.
"""


@dataclass(frozen=True, slots=True)
class Annotations(ServiceAnnotations):
    """Those of one Service, and how their values are read."""

    PREFIX, KNOWN = PREFIX, KNOWN

    def text(self, name: str, default: str = "") -> str:
        """An empty value counts: it stands against the configuration's."""
        return str(self.service.annotations.get(PREFIX + name, default)).strip()

    def boolean(self, name: str, default: bool = False) -> bool:
        return self.one_of(name, ("true", "false"), "true" if default else "false") == "true"

    def internal(self) -> bool:
        """Whether no floating IP is wanted."""
        value = self.service.annotations.get(INTERNAL, "false")
        if value not in ("true", "false"):
            self.warnings.append(f"annotation {INTERNAL} is ignored: give true or false")
        return value == "true"

    def integer(self, name: str, default: int, minimum: int, maximum: int = 2**31 - 1) -> int:
        value = self.text(name, str(default))
        try:
            number = int(value)
        except ValueError:
            number = minimum - 1
        if minimum <= number <= maximum:
            return number
        self.ignore(name, f"{value!r} is not a number from {minimum} to {maximum}; it is {default}")
        return default

    def one_of(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value in choices:
            return value
        listed = ", ".join(filter(None, choices))
        self.ignore(name, f"{value!r} is not one of {listed}; it is {default or 'none'}")
        return default
