"""Annotations of Services for Azure, as upstream reads them; what is wrong is refused."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.errors import Refused
from ccm.model.annotations import check_length
from ccm.model.cloud import Network, read_network
from ccm.model.service import MOST_RANGES

PREFIX = "service.beta.kubernetes.io/azure-"
PORT_PREFIX = "service.beta.kubernetes.io/port_"
INTERNAL = f"{PREFIX}load-balancer-internal"
CONFIGURATIONS = "load-balancer-configurations"
RESOURCE_GROUP = "load-balancer-resource-group"
MOST_PROBE_SECONDS = 120  # interval times number, which Azure does not take
MOST_ITEMS = 50  # of `key=value` and of load balancers; Azure has no more tags
MOST_TEXT = 8192  # characters of what is read for each port

_GROUP = re.compile(r"[\w().-]{0,89}[\w()-]")

KNOWN = frozenset((
    "additional-public-ips", "allowed-ip-ranges", "allowed-service-tags",
    "deny-all-except-load-balancer-source-ranges", "disable-load-balancer-floating-ip",
    "disable-load-balancer-nsg-rule", "dns-label-name", "load-balancer-configurations",
    "load-balancer-disable-tcp-reset", "load-balancer-enable-high-availability-ports",
    "load-balancer-health-probe-interval", "load-balancer-health-probe-num-of-probe",
    "load-balancer-health-probe-protocol", "load-balancer-health-probe-request-path",
    "load-balancer-internal", "load-balancer-internal-subnet", "load-balancer-ipv4",
    "load-balancer-ipv6", "load-balancer-resource-group", "load-balancer-tcp-idle-timeout",
    "pip-ip-tags", "pip-name", "pip-name-ipv6", "pip-prefix-id", "pip-prefix-id-ipv6",
    "pip-tags",
))  # fmt: skip
WITHOUT_EFFECT = {
    "load-balancer-mode": "it is of basic load balancers, which Azure has retired",
    "shared-securityrule": "rules are shared wherever sources and ports are the same",
}
NOT_SERVED = {
    "pls-create": "private link services are not made here",
}
LISTS = "allowed-ip-ranges", "pip-tags"
"""Those that are read once; all others may be read for each port."""
PRIVILEGED = (
    "additional-public-ips", "disable-load-balancer-nsg-rule", "load-balancer-internal-subnet",
    "load-balancer-resource-group", "pip-name", "pip-name-ipv6", "pip-prefix-id",
    "pip-prefix-id-ipv6",
)  # fmt: skip
"""By which a Service reaches networks and addresses that are not its own."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """Those of one Service; `warnings` grow with what has no effect."""

    values: Mapping[str, str]
    warnings: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Warn of what has no effect; raise `Refused` for what this provider cannot do."""
        for name, why in NOT_SERVED.items():
            if self.text(name) and (name != "pls-create" or self.is_true(name)):
                raise Refused(f"annotation {PREFIX}{name}: {why}")
        for key in sorted(self.values):
            name = key.removeprefix(PREFIX)
            if key.startswith((PREFIX, PORT_PREFIX)) and name not in LISTS:
                check_length(key, self.values[key], MOST_TEXT)
            if key.startswith(PREFIX) and name not in KNOWN and name not in NOT_SERVED:
                why = WITHOUT_EFFECT.get(name, "it is not known")
                if not name.startswith("pls-"):
                    self.warnings.append(f"annotation {key} has no effect: {why}")

    def has(self, name: str) -> bool:
        return PREFIX + name in self.values

    def text(self, name: str) -> str:
        """The value, without blanks around it; empty without one."""
        return str(self.values.get(PREFIX + name) or "").strip()

    def is_true(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    @property
    def resource_group(self) -> str:
        """That of public addresses; empty for the cluster's, or where it is not one's name."""
        name = self.text(RESOURCE_GROUP)
        return name if _GROUP.fullmatch(name) else ""

    @property
    def floats(self) -> bool:
        """Whether packets arrive at the load balancer's address, and not at node ports."""
        return not self.is_true("disable-load-balancer-floating-ip")

    def items(self, name: str) -> list[str]:
        """What a comma separates."""
        return [item.strip() for item in self.text(name).split(",") if item.strip()]

    def few(self, name: str) -> list[str]:
        """The same, of which there are few; raises `Refused`."""
        if len(found := self.items(name)) > MOST_ITEMS:
            raise Refused(f"annotation {PREFIX}{name}: more than {MOST_ITEMS} items")
        return found

    def pairs(self, name: str) -> dict[str, str]:
        """`key=value` items, as upstream; an invalid item is left out with a warning."""
        found = {}
        for item in self.few(name):
            key, equals, value = item.partition("=")
            if equals and key.strip() and "=" not in value:
                found[key.strip()] = value.strip()
            else:
                self.warnings.append(f"annotation {PREFIX}{name}: {item!r} is not key=value")
        return found

    def networks(self, name: str) -> list[Network]:
        """A list of networks; raises `Refused`."""
        items = self.items(name)
        if len(items) > MOST_RANGES:
            raise Refused(f"annotation {PREFIX}{name}: more than {MOST_RANGES} networks are given")
        found = [read_network(item) for item in items]
        if None in found:
            raise Refused(
                f"annotation {PREFIX}{name}: {self.text(name)!r} is not a list of networks"
            )
        return [item for item in found if item]

    def number(self, name: str, least: int, most: int, default: int) -> int:
        """A whole number; raises `Refused`."""
        return _number(PREFIX + name, self.values.get(PREFIX + name), least, most, default)

    def of_port(self, port: int, name: str) -> str:
        """The value for a port; empty without one."""
        return str(self.values.get(f"{PORT_PREFIX}{port}_{name}") or "").strip()

    def is_port_true(self, port: int, name: str) -> bool:
        return self.of_port(port, name).lower() == "true"

    def probe_number(self, port: int, name: str, least: int, default: int) -> int:
        """Of a port, else of the Service."""
        usual = self.number(
            f"load-balancer-health-probe-{name}", least, MOST_PROBE_SECONDS, default
        )
        key = f"{PORT_PREFIX}{port}_health-probe_{name}"
        return _number(key, self.values.get(key), least, MOST_PROBE_SECONDS, usual)

    def probe_text(self, port: int, name: str) -> str:
        """Of a port, else of the Service."""
        return self.of_port(port, f"health-probe_{name}") or self.text(
            f"load-balancer-health-probe-{name}"
        )


def _number(key: str, value: object, least: int, most: int, default: int) -> int:
    if value is None:
        return default
    given = str(value).strip()
    if not (
        given.isascii() and given.isdecimal() and len(given) < 10 and least <= int(given) <= most
    ):
        raise Refused(f"annotation {key}: {given!r} is not a whole number from {least} to {most}")
    return int(given)
