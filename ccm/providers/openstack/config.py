"""The --cloud-config file as upstream has it; all its faults are reported at once."""

import logging
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ccm.cloud.config_file import (
    ConfigEntry,
    ConfigReader,
    Reading,
    SectionReader,
    keys_of,
    number_within,
    one_of,
    parse_gcfg,
)
from ccm.model.cloud import Network, read_network
from ccm.providers.openstack.credentials import GlobalSection, user_domain, with_clouds

log = logging.getLogger(__name__)

S = TypeVar("S")

INTERFACES = ("public", "internal", "admin")
LB_METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
MAX_RETRIES = 10  # Octavia's limit
MAX_SHARED = 1000
REGIONAL_VARIABLE = "OS_CCM_REGIONAL"


@dataclass(frozen=True, slots=True)
class NetworkingSection:
    """`[Networking]`: which addresses of a server are a Node's."""

    ipv6_support_disabled: bool = False
    public_network_name: tuple[str, ...] = ()
    internal_network_name: tuple[str, ...] = ()
    address_sort_order: str = ""

    @property
    def sort_order(self) -> tuple[Network, ...]:
        """The networks in `address_sort_order`, without what is none."""
        items = map(read_network, map(str.strip, self.address_sort_order.split(",")))
        return tuple(network for network in items if network)


@dataclass(frozen=True, slots=True)
class BalancerClass:
    """`[LoadBalancerClass "name"]`, and the same keys of `[LoadBalancer]`: where balancers are."""

    floating_network_id: str = ""
    floating_subnet_id: str = ""
    floating_subnet: str = ""
    floating_subnet_tags: str = ""
    network_id: str = ""
    subnet_id: str = ""
    member_subnet_id: str = ""


@dataclass(frozen=True, slots=True)
class BalancerSection(BalancerClass):
    """`[LoadBalancer]`: what a balancer is like when its Service does not say."""

    enabled: bool = True
    lb_version: str = ""
    lb_provider: str = ""
    lb_method: str = "ROUND_ROBIN"
    internal_lb: bool = False
    create_monitor: bool = False
    monitor_delay: float = 5.0
    monitor_timeout: float = 3.0
    monitor_max_retries: int = 1
    monitor_max_retries_down: int = 3
    manage_security_groups: bool = False
    node_selector: str = ""
    cascade_delete: bool = True
    flavor_id: str = ""
    availability_zone: str = ""
    max_shared_lb: int = 2
    default_tls_container_ref: str = ""
    container_store: str = "barbican"
    enable_ingress_hostname: bool = False
    ingress_hostname_suffix: str = "nip.io"
    provider_requires_serial_api_calls: bool = False


@dataclass(frozen=True, slots=True)
class RouteSection:
    """`[Route]`."""

    router_id: str = ""


@dataclass(frozen=True, slots=True)
class MetadataSection:
    """`[Metadata]`: of the instance's metadata we need none; the timeout is that of every call."""

    search_order: str = ""
    request_timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class OpenStackConfig:
    """What the file says; empty text where it says nothing."""

    credentials: GlobalSection = GlobalSection()
    networking: NetworkingSection = NetworkingSection()
    balancers: BalancerSection = BalancerSection()
    classes: Mapping[str, BalancerClass] = field(default_factory=dict)
    routes: RouteSection = RouteSection()
    metadata: MetadataSection = MetadataSection()
    is_regional: bool = False  # whether provider IDs have the region in them


SECTIONS = {
    "global": GlobalSection,
    "networking": NetworkingSection,
    "loadbalancer": BalancerSection,
    "route": RouteSection,
    "metadata": MetadataSection,
}
CLASS_SECTION = "loadbalancerclass"
UNUSED_SECTIONS = ("blockstorage",)
"""Of other programs that read the same file; upstream ignores what it does not know."""


def read_config(content: bytes, path: str, *, is_start: bool = True) -> OpenStackConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it.

    Keys that are not known have no effect, as upstream; at the start they are told.
    """
    grouped: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry in parse_gcfg(content, path):
        if _is_known(entry):
            grouped[entry.section, entry.name][entry.key].append(entry.value)
        elif is_start and entry.section not in UNUSED_SECTIONS:
            extra = {"section": entry.section, "key": entry.key, "path": path}
            log.warning("a key of the cloud configuration is not known", extra=extra)
    readers: list[ConfigReader] = []

    def read(kind: type[S], section: str, name: str = "") -> S:
        values = grouped[section.lower(), name]
        readers.append(reader := SectionReader(path, section, values, values))
        return reader.read(kind, READINGS)

    config = OpenStackConfig(
        credentials=read(GlobalSection, "Global"),
        networking=read(NetworkingSection, "Networking"),
        balancers=read(BalancerSection, "LoadBalancer"),
        classes={
            name: read(BalancerClass, "LoadBalancerClass", name)
            for section, name in list(grouped)
            if section == CLASS_SECTION
        },
        routes=read(RouteSection, "Route"),
        metadata=read(MetadataSection, "Metadata"),
        is_regional=os.environ.get(REGIONAL_VARIABLE, "").lower() == "true",
    )
    if config.credentials.use_clouds:
        config = replace(config, credentials=with_clouds(config.credentials, path))
    faults = ConfigReader(path, "Global", (), {})
    check_credentials(config.credentials, faults)
    check_balancers(config.balancers, faults)
    faults.faults[:0] = [fault for reader in readers for fault in reader.faults]
    faults.check()
    if is_start:
        warn_of_sort_order(config.networking)
    return config


def _is_known(entry: ConfigEntry) -> bool:
    kind = BalancerClass if entry.section == CLASS_SECTION else SECTIONS.get(entry.section)
    return kind is not None and entry.key in keys_of(kind)


def _choice(*choices: str) -> Reading:
    def read(value: str) -> str:
        return one_of(choices)(value).removesuffix("URL")

    return read, f"use {', '.join(filter(None, choices))}"


def _up_to(limit: int) -> Reading:
    return number_within(1, limit), f"give 1 to {limit}"


READINGS: Mapping[str, Reading] = {
    "os-endpoint-type": _choice(*INTERFACES, *(f"{name}URL" for name in INTERFACES), ""),
    "lb-version": _choice("v2", ""),
    "lb-method": _choice(*LB_METHODS),
    "container-store": _choice("barbican", "external"),
    "monitor-max-retries": _up_to(MAX_RETRIES),
    "monitor-max-retries-down": _up_to(MAX_RETRIES),
    "max-shared-lb": _up_to(MAX_SHARED),
}


def check_credentials(known: GlobalSection, faults: ConfigReader) -> None:
    """Record what is missing to get a token with."""
    if not known.auth_url.startswith(("http://", "https://")):
        faults.add("auth-url", "is missing or no URL", "give Keystone's as https://host/v3")
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if getattr(known, one) and not getattr(known, other):
            faults.add(other.replace("_", "-"), "is missing", f"give it, or no {one[:-5]}-file")
    if known.token or known.trust_id:
        return
    if known.application_credential_id or known.application_credential_name:
        if not known.application_credential_secret:
            faults.add("application-credential-secret", "is missing", "give it")
        if known.application_credential_id:
            return
    elif not known.password:
        remedy = "give an application credential, or a user and a password"
        faults.add("password", "is missing", remedy)
    if not known.user_id and not known.username:
        faults.add("username", "is missing", "give it, or user-id")
    elif not known.user_id and not user_domain(known):
        faults.add("user-domain-name", "is missing", "give it, or domain-name or user-id")


def check_balancers(balancers: BalancerSection, faults: ConfigReader) -> None:
    """Record what Octavia would not take."""
    if balancers.monitor_timeout >= balancers.monitor_delay:
        place, remedy = "[LoadBalancer] monitor-timeout", "give less"
        faults.add_at(place, "is not less than monitor-delay", remedy)


def warn_of_sort_order(networking: NetworkingSection) -> None:
    """Tell what in the order is no network: upstream ignores it."""
    for item in filter(None, map(str.strip, networking.address_sort_order.split(","))):
        if read_network(item) is None:
            log.warning("address-sort-order has an item that is no CIDR", extra={"item": item})
