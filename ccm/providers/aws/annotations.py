"""The annotations of upstream's controller, read strictly: what cannot be honoured is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccm.errors import ImplementedElsewhere, Refused
from ccm.model.service import Service

PREFIX = "service.beta.kubernetes.io/aws-load-balancer-"
CLASSIC, NETWORK = "classic", "nlb"
ELSEWHERE = ("external", "nlb-ip")
"""Types that the AWS Load Balancer Controller looks after."""

_BOTH = frozenset(
    {
        "type",
        "internal",
        "scheme",
        "subnets",
        "security-groups",
        "target-node-labels",
        "proxy-protocol",
        "ssl-cert",
        "ssl-ports",
        "ssl-negotiation-policy",
        "backend-protocol",
        "cross-zone-load-balancing-enabled",
        "access-log-enabled",
        "access-log-s3-bucket-name",
        "access-log-s3-bucket-prefix",
        "additional-resource-tags",
        "healthcheck-protocol",
        "healthcheck-port",
        "healthcheck-path",
        "healthcheck-healthy-threshold",
        "healthcheck-unhealthy-threshold",
        "healthcheck-timeout",
        "healthcheck-interval",
    }
)
KNOWN: Mapping[str, frozenset[str]] = {
    CLASSIC: _BOTH
    | {
        "extra-security-groups",
        "access-log-emit-interval",
        "connection-draining-enabled",
        "connection-draining-timeout",
        "connection-idle-timeout",
    },
    NETWORK: _BOTH
    | {
        "alpn-policy",
        "attributes",
        "eip-allocations",
        "target-group-attributes",
    },
}
"""The names, without their prefix, that each kind of balancer can honour."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """Those of one Service. Every reader raises `Refused` for a value that it cannot honour."""

    values: Mapping[str, str]  # names without the prefix

    @classmethod
    def of(cls, service: Service) -> "Annotations":
        given = service.annotations.items()
        return cls({k.removeprefix(PREFIX): v for k, v in given if k.startswith(PREFIX)})

    def check_known(self, kind: str) -> None:
        """Refuse what a balancer of this kind has not."""
        for name in sorted(self.values.keys() - KNOWN[kind]):
            if any(name in names for names in KNOWN.values()):
                raise Refused(f"annotation {PREFIX}{name} is not for a balancer of type {kind}")
            raise Refused(f"annotation {PREFIX}{name} is not known")

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default).strip()

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise self.wrong(name, "true or false")
        return value == "true"

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        value = self.text(name, str(default))
        if not value.isdecimal() or not least <= int(value) <= most:
            raise self.wrong(name, f"a number from {least} to {most}")
        return int(value)

    def one_of(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value.lower() not in [choice.lower() for choice in choices]:
            raise self.wrong(name, f"one of {', '.join(choices)}")
        return value

    def listed(self, name: str) -> list[str]:
        """The parts of a comma-separated list, in their order."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def pairs(self, name: str) -> dict[str, str]:
        """`key=value,…`; a key without a value has an empty one."""
        pairs = (part.partition("=") for part in self.listed(name))
        found = {key.strip(): value.strip() for key, _, value in pairs}
        if "" in found:
            raise self.wrong(name, "a list of key=value")
        return found

    def wrong(self, name: str, wanted: str) -> Refused:
        return Refused(f"annotation {PREFIX}{name} is {self.text(name)!r}; give {wanted}")


def kind_of(service: Service, usual: str) -> str:
    """The kind of balancer for a Service; raises `ImplementedElsewhere` for another controller's.

    Where the type is not said, it is the `usual` one, unless the ports need the other.
    """
    annotations = Annotations.of(service)
    kind = annotations.text("type")
    if kind in ELSEWHERE:
        raise ImplementedElsewhere(f"balancers of type {kind} are another controller's")
    if not kind:
        needs_network = any(port.get("protocol") == "UDP" for port in service.ports)
        return NETWORK if needs_network else usual
    if kind not in KNOWN:
        raise annotations.wrong("type", f"{NETWORK}, {CLASSIC} or one of {', '.join(ELSEWHERE)}")
    return kind


def is_internal(annotations: Annotations) -> bool:
    """Whether only the VPC is to reach the balancer; `internal` has any value but false."""
    if "scheme" in annotations.values:
        choices = ("internet-facing", "internal")
        return annotations.one_of("scheme", choices, "").lower() == "internal"
    return annotations.text("internal", "false").lower() not in ("", "false")
