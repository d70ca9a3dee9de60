"""The --cloud-config file as upstream has it; all its faults are reported at once."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ccm.cloud.config_file import (
    READABLE,
    choice,
    positive_duration,
    whole_number,
    why_no_certificate,
    why_unreadable,
)
from ccm.cloud.sections import Faults, Sections, setting
from ccm.durations import parse_duration
from ccm.model.cloud import Network, read_network
from ccm.providers.openstack.credentials import GlobalSection, user_domain, with_clouds

log = logging.getLogger(__name__)

LB_METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
MAX_RETRIES = 10  # Octavia's limit
MAX_SHARED = 1000
REGIONAL_VARIABLE = "OS_CCM_REGIONAL"


def _retries(value: str) -> int | None:
    """A number that Octavia takes; upstream starts with 0, which is invalid."""
    return None if value == "0" else whole_number(1, MAX_RETRIES)[0](value)


def _timeout(value: str) -> float | None:
    """More than none; 0 is upstream's default."""
    return None if parse_duration(value) == 0 else positive_duration(value)


_RETRIES = _retries, f"give 1 to {MAX_RETRIES}"
_TIMEOUT = _timeout, "give a duration as 5s"


@dataclass(frozen=True, slots=True)
class NetworkingSection:
    """`[Networking]`: which addresses of a server are a Node's."""

    ipv6_support_disabled: bool = False
    public_network_name: tuple[str, ...] = ()
    internal_network_name: tuple[str, ...] = ()
    address_sort_order: str = ""

    @property
    def sort_order(self) -> tuple[Network, ...]:
        """The networks in `address_sort_order`, without invalid items."""
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
    lb_version: str = setting("", choice("v2"))
    lb_provider: str = ""
    lb_method: str = setting("ROUND_ROBIN", choice(*LB_METHODS))
    internal_lb: bool = False
    allow_requested_ip: bool = True
    create_monitor: bool = False
    monitor_delay: float = 5.0
    monitor_timeout: float = 3.0
    monitor_max_retries: int = setting(1, _RETRIES)
    monitor_max_retries_down: int = setting(3, _RETRIES)
    manage_security_groups: bool = False
    node_selector: str = ""
    cascade_delete: bool = True
    flavor_id: str = ""
    availability_zone: str = ""
    max_shared_lb: int = setting(2, whole_number(1, MAX_SHARED))
    default_tls_container_ref: str = ""
    container_store: str = setting("barbican", choice("barbican", "external"))
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
    request_timeout: float = setting(60.0, _TIMEOUT)


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


SECTIONS: Mapping[str, type] = {
    "Global": GlobalSection,
    "Networking": NetworkingSection,
    "LoadBalancer": BalancerSection,
    "LoadBalancerClass": BalancerClass,
    "Route": RouteSection,
    "Metadata": MetadataSection,
}
UNUSED = {"BlockStorage": ()}
"""Of other programs that read the same file; upstream ignores what it does not know."""


def read_config(content: bytes, path: str, *, is_start: bool = True) -> OpenStackConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it.

    Keys that are not known have no effect, as upstream; at the start they are logged.
    """

    def log_unknown(section: str, key: str, line: int, hint: str) -> None:
        if is_start:
            extra = {"section": section, "key": key, "path": f"{path}:{line}", "hint": hint}
            log.warning("a key of the cloud configuration is not known", extra=extra)

    sections = Sections(
        content, path, SECTIONS, named=("LoadBalancerClass",), unused=UNUSED, on_unknown=log_unknown
    )
    config = OpenStackConfig(
        credentials=sections.read(GlobalSection),
        networking=sections.read(NetworkingSection),
        balancers=sections.read(BalancerSection),
        classes=sections.read_named(BalancerClass),
        routes=sections.read(RouteSection),
        metadata=sections.read(MetadataSection),
        is_regional=os.environ.get(REGIONAL_VARIABLE, "").lower() == "true",
    )
    if config.credentials.use_clouds:
        config = replace(config, credentials=with_clouds(config.credentials, path))
    check_credentials(config.credentials, sections.faults)
    check_tls(config.credentials, sections.faults)
    sections.faults.check()
    if is_start:
        _warn(config)
    return config


def check_credentials(known: GlobalSection, faults: Faults) -> None:
    """Record what is missing to get a token with."""
    if not known.auth_url.startswith(("http://", "https://")):
        faults.add(
            "[Global] auth-url", "is missing or no URL", "give Keystone's as https://host/v3"
        )
    if known.token or known.trust_id:
        return
    if known.application_credential_id or known.application_credential_name:
        if not known.application_credential_secret:
            faults.add("[Global] application-credential-secret", "is missing", "give it")
        if known.application_credential_id:
            return
    elif not known.password:
        remedy = "give an application credential, or a user and a password"
        faults.add("[Global] password", "is missing", remedy)
    if not known.user_id and not known.username:
        faults.add("[Global] username", "is missing", "give it, or user-id")
    elif not known.user_id and not user_domain(known):
        faults.add("[Global] user-domain-name", "is missing", "give it, or domain-name or user-id")


def check_tls(known: GlobalSection, faults: Faults) -> None:
    """Record what is wrong with files of certificates."""
    for item, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if getattr(known, item) and not getattr(known, other):
            place = f"[Global] {other.replace('_', '-')}"
            faults.add(place, "is missing", f"give it, or no {item[:-5]}-file")
    if why := known.ca_file and why_no_certificate(known.ca_file):
        faults.add("[Global] ca-file", why, "give the file of a certificate")
    for item in ("cert_file", "key_file"):
        file = getattr(known, item)
        if why := file and why_unreadable(file):
            faults.add(f"[Global] {item.replace('_', '-')}", f"is {file!r}, which {why}", READABLE)


def _warn(config: OpenStackConfig) -> None:
    """Log what upstream accepts or ignores, and Octavia or nothing here uses."""
    balancers = config.balancers
    if balancers.monitor_timeout >= balancers.monitor_delay:
        log.warning("monitor-timeout is not less than monitor-delay")
    for item in filter(None, map(str.strip, config.networking.address_sort_order.split(","))):
        if read_network(item) is None:
            log.warning("address-sort-order has an item that is not a CIDR", extra={"item": item})
