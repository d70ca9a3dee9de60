"""A network load balancer as it is and as it has to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.providers.aws.balancers.request import Check
from ccm.providers.aws.tags import Tags

Attributes = Mapping[str, str]

DEFAULTS: Attributes = {
    "access_logs.s3.enabled": "false",
    "load_balancing.cross_zone.enabled": "false",
    "proxy_protocol_v2.enabled": "false",
}
"""What an attribute is where AWS does not list it; of all others that is empty text."""


@dataclass(frozen=True, slots=True)
class Listener:
    """What comes in at one port and where it goes; `group` is a target group's name."""

    port: int
    protocol: str
    group: str
    certificate: str = ""
    policy: str = ""  # empty in what has to be: any will do
    alpn: str = ""


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """Instances and how their health is found; `port` is the node port."""

    name: str
    protocol: str
    port: int
    check: Check
    attributes: Attributes = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)
    targets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NetworkBalancer:
    """The balancer itself; `subnets` are with the EIP allocation that each has, or empty text."""

    name: str
    is_internal: bool
    subnets: Mapping[str, str]
    groups: tuple[str, ...]
    tags: Tags
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Seen:
    """All there is of one Service, with the ARNs of its parts by port and by name.

    `strangers` are names of target groups that could be the Service's, but are not.
    """

    balancer: NetworkBalancer | None
    arn: str
    hostname: str
    listeners: Mapping[int, Listener]
    listener_arns: Mapping[int, str]
    groups: Mapping[str, TargetGroup]
    group_arns: Mapping[str, str]
    strangers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What has to be there; target groups are by name, listeners by port."""

    balancer: NetworkBalancer
    listeners: Mapping[int, Listener]
    groups: Mapping[str, TargetGroup]


def differing(wanted: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str]:
    """Attributes or tags to set; what nobody asks for stays as it is."""
    return {k: v for k, v in wanted.items() if seen.get(k, DEFAULTS.get(k, "")) != v}
