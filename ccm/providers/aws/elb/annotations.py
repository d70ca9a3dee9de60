"""The annotations of upstream's controller, read strictly: what cannot be honoured is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccm.errors import ImplementedElsewhere, Refused
from ccm.model.service import Service

PREFIX = "service.beta.kubernetes.io/aws-load-balancer-"
CLASSIC, NLB = "classic", "nlb"
LBC_TYPES = ("external", "nlb-ip")
"""Types that the AWS Load Balancer Controller looks after."""

_BOTH = """
    type internal scheme subnets security-groups target-node-labels proxy-protocol ssl-cert
    ssl-ports ssl-negotiation-policy backend-protocol cross-zone-load-balancing-enabled
    access-log-enabled access-log-s3-bucket-name access-log-s3-bucket-prefix
    additional-resource-tags healthcheck-protocol healthcheck-port healthcheck-path
    healthcheck-healthy-threshold healthcheck-unhealthy-threshold healthcheck-timeout
    healthcheck-interval
"""
_CLASSIC = """
    extra-security-groups access-log-emit-interval connection-draining-enabled
    connection-draining-timeout connection-idle-timeout
"""
_NLB = "alpn-policy attributes eip-allocations target-group-attributes"
SUPPORTED_ANNOTATIONS: Mapping[str, frozenset[str]] = {
    CLASSIC: frozenset(f"{_BOTH} {_CLASSIC}".split()),
    NLB: frozenset(f"{_BOTH} {_NLB}".split()),
}
"""The names, without their prefix, that each type of load balancer can honour."""

OUTREACHING = (
    "security-groups",
    "extra-security-groups",
    "subnets",
    "ssl-cert",
    "eip-allocations",
    "access-log-s3-bucket-name",
    "attributes",
    "healthcheck-port",
)
"""The names of those that reach what is not the Service's own; docs/providers/aws.md says what."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """Those of one Service. Every reader raises `Refused` for a value that it cannot honour."""

    values: Mapping[str, str]  # names without the prefix

    @classmethod
    def of(cls, service: Service) -> "Annotations":
        items = service.annotations.items()
        return cls({k.removeprefix(PREFIX): v for k, v in items if k.startswith(PREFIX)})

    def check_supported(self, elb_type: str) -> None:
        """Refuse what a load balancer of this type has not."""
        for name in sorted(self.values.keys() - SUPPORTED_ANNOTATIONS[elb_type]):
            if any(name in names for names in SUPPORTED_ANNOTATIONS.values()):
                raise Refused(
                    f"annotation {PREFIX}{name} is not for a load balancer of type {elb_type}"
                )
            raise Refused(f"annotation {PREFIX}{name} is not known")

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default).strip()

    def boolean(self, name: str) -> bool:
        value = self.text(name, "false").lower()
        if value not in ("true", "false"):
            raise self.invalid(name, "true or false")
        return value == "true"

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        value = self.text(name, str(default))
        if not value.isdecimal() or not minimum <= int(value) <= maximum:
            raise self.invalid(name, f"a number from {minimum} to {maximum}")
        return int(value)

    def one_of(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of the choices, in any case of letters."""
        value = self.text(name, default)
        if value.lower() not in [choice.lower() for choice in choices]:
            raise self.invalid(name, f"one of {', '.join(choices)}")
        return value

    def csv(self, name: str) -> list[str]:
        """The parts of a comma-separated list, in their order."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def key_values(self, name: str) -> dict[str, str]:
        """`key=value,…`; a key without a value has an empty one."""
        pairs = (part.partition("=") for part in self.csv(name))
        found = {key.strip(): value.strip() for key, _, value in pairs}
        if "" in found:
            raise self.invalid(name, "a list of key=value")
        return found

    def invalid(self, name: str, valid: str) -> Refused:
        return Refused(f"annotation {PREFIX}{name} is {self.text(name)!r}; give {valid}")


def load_balancer_type(service: Service, default: str) -> str:
    """The type for a Service; raises `ImplementedElsewhere` for another controller's.

    Where the type is not said, it is the default one, unless the ports need an NLB.
    """
    annotations = Annotations.of(service)
    elb_type = annotations.text("type")
    if elb_type in LBC_TYPES:
        raise ImplementedElsewhere(f"load balancers of type {elb_type} are another controller's")
    if not elb_type:
        needs_nlb = any(port.get("protocol") == "UDP" for port in service.ports)
        return NLB if needs_nlb else default
    if elb_type not in SUPPORTED_ANNOTATIONS:
        raise annotations.invalid("type", f"{NLB}, {CLASSIC} or one of {', '.join(LBC_TYPES)}")
    return elb_type


def is_internal(annotations: Annotations) -> bool:
    """Whether only the VPC is to reach the load balancer; `internal` has any value but false."""
    if "scheme" in annotations.values:
        choices = ("internet-facing", "internal")
        return annotations.one_of("scheme", choices, "").lower() == "internal"
    return annotations.text("internal", "false").lower() not in ("", "false")
