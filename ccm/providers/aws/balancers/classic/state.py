"""A classic load balancer as it is and as it has to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.providers.aws.balancers.request import Check
from ccm.providers.aws.tags import Tags

PROXY_POLICY = "k8s-proxyprotocol-enabled"
TLS_POLICY = "k8s-SSLNegotiationPolicy-{}"

Attributes = Mapping[str, Mapping[str, object]]
"""Sections of attributes by name, as the API has them."""


@dataclass(frozen=True, slots=True)
class Listener:
    """What comes in at one port and where it goes."""

    port: int
    protocol: str
    node_port: int
    node_protocol: str
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class ClassicBalancer:
    """All that a balancer has; `check.port` is a number.

    `tls_policies` are of listeners, by port: in what has to be, only those that are asked for.
    `proxied` are the node ports to which the client's address is sent on.
    """

    name: str
    is_internal: bool
    subnets: frozenset[str]
    groups: tuple[str, ...]
    listeners: Mapping[int, Listener]
    check: Check
    tags: Tags
    attributes: Attributes
    instances: frozenset[str]
    tls_policies: Mapping[int, str] = field(default_factory=dict)
    proxied: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Seen:
    """The balancer that there is, if any; `policies` are those that it has, used or not."""

    balancer: ClassicBalancer | None
    hostname: str = ""
    policies: frozenset[str] = frozenset()


def differing(wanted: Attributes, seen: Attributes) -> dict[str, Mapping[str, object]]:
    """The sections with a value that is not as wanted."""
    return {
        section: values
        for section, values in wanted.items()
        if not values.items() <= seen.get(section, {}).items()
    }
