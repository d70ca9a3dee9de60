"""The annotations of upstream's controller, read as it reads them; what it rejects is refused."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ccm.errors import ImplementedElsewhere, Refused
from ccm.model.annotations import MOST_DIGITS, check_length
from ccm.model.service import Service

PREFIX = "service.beta.kubernetes.io/aws-load-balancer-"
CLASSIC, NLB = "classic", "nlb"
CLASSIC_TYPES = (CLASSIC, "elb", "clb")
"""What people call a Classic Load Balancer; so does upstream any type that it does not know."""
LBC_TYPES = ("external", "nlb-ip")
"""Types that the AWS Load Balancer Controller looks after."""

_BOTH = """
    type internal scheme subnets security-groups target-node-labels ssl-cert ssl-ports
    ssl-negotiation-policy backend-protocol cross-zone-load-balancing-enabled
    access-log-enabled access-log-s3-bucket-name access-log-s3-bucket-prefix
    additional-resource-tags healthcheck-protocol healthcheck-port healthcheck-path
    healthcheck-healthy-threshold healthcheck-unhealthy-threshold healthcheck-timeout
    healthcheck-interval
"""
_CLASSIC = """
    proxy-protocol extra-security-groups access-log-emit-interval connection-draining-enabled
    connection-draining-timeout connection-idle-timeout
"""
_NLB = """
    alpn-policy attributes eip-allocations ip-address-type private-ipv4-addresses
    target-group-attributes
"""
SUPPORTED_ANNOTATIONS: Mapping[str, frozenset[str]] = {
    CLASSIC: frozenset(f"{_BOTH} {_CLASSIC}".split()),
    NLB: frozenset(f"{_BOTH} {_NLB}".split()),
}
"""The names, without their prefix, that each type of load balancer can honour."""
REJECTED_ANNOTATIONS: Mapping[str, str] = {
    CLASSIC: "target-group-attributes",
    NLB: "extra-security-groups",
}
"""The one that each type of load balancer cannot honour and upstream does not ignore."""

PRIVILEGED = (
    "security-groups",
    "extra-security-groups",
    "subnets",
    "ssl-cert",
    "eip-allocations",
    "private-ipv4-addresses",
    "access-log-s3-bucket-name",
    "attributes",
    "healthcheck-port",
)
"""The names of those that reach what is not the Service's own; docs/providers/aws.md says what."""

BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
"""What Go's strconv.ParseBool takes."""
NUMBER = re.compile(rf"[+-]?[0-9]{{1,{MOST_DIGITS}}}")
"""What Go's strconv.ParseInt takes."""
MOST_PAIRS = 50  # of `key=value`; AWS takes no more tags, and no more labels of Nodes count
MOST_TEXT = 32_768  # characters of an annotation that are read for each port; 50 tags take 19,000


@dataclass(frozen=True, slots=True)
class Annotations:
    """Those of one Service. Every reader raises `Refused` for a value that it cannot honour.

    `ignored` has why for each that has no effect; the code that finds one adds it. `notes` has
    sentences about other parts of the Service.
    """

    values: Mapping[str, str]  # names without the prefix
    ignored: dict[str, str] = field(default_factory=dict, compare=False)
    notes: list[str] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, service: Service) -> "Annotations":
        items = service.annotations.items()
        return cls({k.removeprefix(PREFIX): v for k, v in items if k.startswith(PREFIX)})

    @classmethod
    def for_type(cls, service: Service, elb_type: str) -> "Annotations":
        """Those with an effect on a load balancer of this type; `Refused` as upstream does."""
        found = cls.of(service)
        for name, value in found.values.items():
            check_length(PREFIX + name, value, MOST_TEXT)
        rejected = REJECTED_ANNOTATIONS[elb_type]
        if found.text(rejected):
            raise Refused(
                f"annotation {PREFIX}{rejected} is not for a load balancer of type {elb_type}"
            )
        whys = {name: _why_ignored(name, found.text(name), elb_type) for name in found.values}
        return found.without({name: why for name, why in whys.items() if why})

    def without(self, whys: Mapping[str, str]) -> "Annotations":
        """The same without these, which are ignored for what is said of each."""
        for name in self.values.keys() & whys.keys():
            self.ignore(name, whys[name])
        return replace(self, values={k: v for k, v in self.values.items() if k not in whys})

    def ignore(self, name: str, why: str) -> None:
        """Note that it has no effect, or a part of it has none."""
        self.ignored[name] = why

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each that has no effect, and the notes."""
        listed = sorted(self.ignored.items())
        ignored = (f"annotation {PREFIX}{name} is ignored: {why}" for name, why in listed)
        return (*ignored, *dict.fromkeys(self.notes))

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default).strip()

    def boolean(self, name: str) -> bool:
        value = self.text(name, "false")
        if value not in BOOLEANS:
            raise self.invalid(name, "true or false")
        return BOOLEANS[value]

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        value = self.text(name, str(default))
        if not NUMBER.fullmatch(value) or not minimum <= int(value) <= maximum:
            raise self.invalid(name, f"a number from {minimum} to {maximum}")
        return int(value)

    def one_of(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of the choices, in any case of letters."""
        value = self.text(name, default)
        if value.lower() not in [choice.lower() for choice in choices]:
            raise self.invalid(name, f"one of {', '.join(choices)}")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of the choices, given in any case of letters; any other value is ignored."""
        by_name = {choice.lower(): choice for choice in choices}
        value = self.text(name)
        if value and value.lower() not in by_name:
            self.ignore(name, f"{value!r} is not one of {', '.join(choices)}")
        return by_name.get(value.lower(), "")

    def csv(self, name: str) -> list[str]:
        """The parts of a comma-separated list, in their order."""
        parts = self.text(name).strip(", ").split(",")
        return [part.strip() for part in parts if part.strip()]

    def key_values(self, name: str) -> dict[str, str]:
        """`key=value,…` as upstream reads it: a value may be missing, and ends at a second `=`.

        What has no key and what follows a value is ignored; more than `MOST_PAIRS` are `Refused`.
        """
        if self.text(name).strip(", ").count(",") >= MOST_PAIRS:
            raise Refused(f"annotation {PREFIX}{name} has more than {MOST_PAIRS} parts")
        found: dict[str, str] = {}
        for part in self.csv(name):
            key, _, others = part.partition("=")
            value, _, rest = others.partition("=")
            key, value = key.strip(), value.strip()
            if not key:
                self.ignore(name, f"{value!r} in it has no key")
                continue
            if rest.strip("= "):
                self.ignore(name, f"{part!r} in it is taken as {f'{key}={value}'!r}")
            found[key] = value
        return found

    def invalid(self, name: str, valid: str) -> Refused:
        return Refused(f"annotation {PREFIX}{name} is {self.text(name)!r}; give {valid}")


def _why_ignored(name: str, value: str, elb_type: str) -> str:
    """Why this value has no effect on a load balancer of this type; empty when it has one."""
    if name not in SUPPORTED_ANNOTATIONS[elb_type]:
        is_other = any(name in names for names in SUPPORTED_ANNOTATIONS.values())
        return (
            f"it is not for a load balancer of type {elb_type}" if is_other else "it is not known"
        )
    if not value:
        return "it is empty"
    if name == "type" and value not in (NLB, *CLASSIC_TYPES):
        return f"{value!r} is taken as {CLASSIC}"
    return ""


def load_balancer_type(service: Service, default: str) -> str:
    """The type for a Service; raises `ImplementedElsewhere` for another controller's.

    Where the type is not said, it is the default one, unless the ports or IPv6 need an NLB.
    """
    elb_type = Annotations.of(service).text("type")
    if elb_type in LBC_TYPES:
        raise ImplementedElsewhere(f"load balancers of type {elb_type} are another controller's")
    if not elb_type:
        has_udp = any(port.get("protocol") == "UDP" for port in service.ports)
        return NLB if has_udp or service.requires_ipv6 else default
    return NLB if elb_type == NLB else CLASSIC


def is_internal(annotations: Annotations) -> bool:
    """Whether only the VPC is to reach the load balancer; `internal` has any value but false.

    `scheme`, which upstream does not know, counts where `internal` says nothing.
    """
    internal = annotations.text("internal")
    is_scheme_internal = annotations.choice("scheme", ("internet-facing", "internal")) == "internal"
    if not internal:
        return is_scheme_internal
    if "scheme" in annotations.values and is_scheme_internal != (internal != "false"):
        annotations.ignore("scheme", "annotation internal contradicts it")
    return internal != "false"
