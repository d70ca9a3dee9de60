"""Where a load balancer of a Service is to be: its networks, subnets and port."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ccm.errors import Refused
from ccm.providers.openstack.config import BalancerClass, BalancerSection
from ccm.providers.openstack.lb.annotations import Annotations

_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a load balancer is to be; empty where anything will do."""

    port_id: str
    subnet_id: str
    network_id: str
    member_subnet_id: str
    floating_network_id: str
    floating_subnet_id: str
    floating_subnet: str  # a pattern of names
    floating_subnet_tags: str


def read_place(
    read: Annotations, config: BalancerSection, classes: Mapping[str, BalancerClass]
) -> Place:
    """Of the class, else the annotations, else the configuration; as upstream decides."""
    name = read.text("class")
    if name and name not in classes:
        known = ", ".join(sorted(classes)) or "none"
        raise Refused(f"annotation class is {name!r}; the configuration has {known}")
    chosen = classes.get(name, BalancerClass())

    def value(key: str) -> str:
        default: str = getattr(config, key.replace("-", "_"))
        return getattr(chosen, key.replace("-", "_")) or id_in(read, key, default)

    member = id_in(read, "member-subnet-id", "") or chosen.member_subnet_id
    subnet_id, network_id = value("subnet-id"), value("network-id")
    return Place(
        id_in(read, "port-id", ""),
        subnet_id,
        network_id,
        member or config.member_subnet_id or config.subnet_id or subnet_id,
        value("floating-network-id"),
        *_floating_subnet(read, config, chosen),
    )


def _floating_subnet(
    read: Annotations, config: BalancerClass, chosen: BalancerClass
) -> tuple[str, str, str]:
    """ID, pattern and tags: all of one source, and an ID alone."""
    annotated = BalancerClass(
        floating_subnet_id=id_in(read, "floating-subnet-id", ""),
        floating_subnet=read.text("floating-subnet"),
        floating_subnet_tags=read.text("floating-subnet-tags"),
    )
    for item in (chosen, annotated, config):
        if item.floating_subnet_id:
            return item.floating_subnet_id, "", ""
        if item.floating_subnet or item.floating_subnet_tags:
            return "", item.floating_subnet, item.floating_subnet_tags
    return "", "", ""


def is_id(value: str) -> bool:
    """Whether it may stand in a path; an invalid ID could lead elsewhere."""
    return bool(_ID.fullmatch(value))


def id_in(read: Annotations, name: str, default: str) -> str:
    """The ID in an annotation; raises `Refused` for an invalid one."""
    value = read.text(name, default)
    if value and not is_id(value):
        raise Refused(f"annotation {name} is {value!r}; give an ID")
    return value
