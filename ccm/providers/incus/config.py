"""The --cloud-config file, in the format of other clouds'; all its faults are reported at once."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import TypeVar
from urllib.parse import urlsplit

from ccm.cloud.config_file import (
    READABLE,
    ConfigReader,
    Reading,
    SectionReader,
    keys_of,
    number_within,
    one_of,
    parse_gcfg,
    why_unreadable,
)
from ccm.model.cloud import Network

S = TypeVar("S")

BALANCE, FORWARD = "load-balancer", "forward"
STOPPED, REPLUG = "stopped", "replug"
LONGEST_CHECK = 3600  # seconds


@dataclass(frozen=True, slots=True)
class Remote:
    """`[Remote "name"]`: an Incus, and the projects in it whose instances are Nodes."""

    url: str = ""
    certificate: str = ""
    key: str = ""
    server_certificate: str = ""
    project: tuple[str, ...] = ()
    region: str = ""


@dataclass(frozen=True, slots=True)
class NodeSection:
    """`[Node]`: what of an instance becomes what of a Node."""

    network: str = ""  # whose addresses come first
    zone_key: str = ""  # of an instance's configuration, which its users write
    zone_group_prefix: str = ""  # of a group of cluster members


@dataclass(frozen=True, slots=True)
class BalancerSection:
    """`[LoadBalancer]`; without a network there are none."""

    remote: str = ""
    project: str = ""
    network: str = ""
    mode: str = BALANCE
    address_range: tuple[Network, ...] = ()
    health_check: bool = True
    health_check_interval: int = 5
    health_check_timeout: int = 2
    health_check_success_count: int = 2
    health_check_failure_count: int = 2

    @property
    def check_counts(self) -> dict[str, int]:
        """Times and counts of health checks by the end of their keys."""
        return {
            "interval": self.health_check_interval,
            "timeout": self.health_check_timeout,
            "success-count": self.health_check_success_count,
            "failure-count": self.health_check_failure_count,
        }


@dataclass(frozen=True, slots=True)
class RouteSection:
    """`[Routes]`: when a NIC in an OVN network gets or loses routes, which unplugs it."""

    on_ovn: str = STOPPED


@dataclass(frozen=True, slots=True)
class VolumeSection:
    """`[Volumes]`: the CSI driver whose volumes are Incus' custom volumes, if there is one."""

    csi_driver: str = ""


@dataclass(frozen=True, slots=True)
class IncusConfig:
    """What the file says; the keys of `remotes` are their names."""

    remotes: Mapping[str, Remote] = field(default_factory=dict)
    nodes: NodeSection = NodeSection()
    balancers: BalancerSection = BalancerSection()
    routes: RouteSection = RouteSection()
    volumes: VolumeSection = VolumeSection()


SECTIONS: Mapping[str, type] = {
    "node": NodeSection,
    "loadbalancer": BalancerSection,
    "routes": RouteSection,
    "volumes": VolumeSection,
}
REMOTE = "remote"


def read_config(content: bytes, path: str) -> IncusConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    grouped: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    faults = ConfigReader(path, "Remote", (), {})
    for entry in parse_gcfg(content, path):
        grouped[entry.section, entry.name][entry.key].append(entry.value)
    for section, name in grouped:
        if section != REMOTE and (section not in SECTIONS or name):
            shown = f'[{section} "{name}"]' if name else f"[{section}]"
            known = "[Remote], [Node], [LoadBalancer], [Routes] and [Volumes]"
            faults.add_at(shown, "is not a section of this file", f"use {known}")

    def read(kind: type[S], section: str, name: str = "") -> S:
        reader = SectionReader(path, section, keys_of(kind), grouped[section.lower(), name])
        found = reader.read(kind, READINGS)
        faults.faults += reader.faults
        return found

    config = IncusConfig(
        remotes={
            name: read(Remote, "Remote", name)
            for section, name in list(grouped)
            if section == REMOTE
        },
        nodes=read(NodeSection, "Node"),
        balancers=read(BalancerSection, "LoadBalancer"),
        routes=read(RouteSection, "Routes"),
        volumes=read(VolumeSection, "Volumes"),
    )
    _check_remotes(config.remotes, faults)
    _check_balancers(config, faults)
    faults.check()
    return _completed(config)


def _check_remotes(remotes: Mapping[str, Remote], faults: ConfigReader) -> None:
    if not remotes:
        faults.add("url", "is missing", "give [Remote] with the url of an Incus")
    named = set[tuple[str, str]]()
    for name, remote in remotes.items():
        place = f'[Remote "{name}"]' if name else "[Remote]"
        if not remote.url:
            faults.add_at(f"{place} url", "is missing", "give https://host:8443 or unix:///path")
        if not remote.project:
            faults.add_at(f"{place} project", "is missing", "name each project that has Nodes")
        for project in remote.project:
            if (where := (remote.url, project)) in named:
                remedy = "name each project of an Incus once"
                faults.add_at(f"{place} project", f"has {project!r} twice", remedy)
            named.add(where)
        if not remote.url.startswith("https"):
            continue
        for key in ("certificate", "key", "server_certificate"):
            shown, file = f"{place} {key.replace('_', '-')}", getattr(remote, key)
            if not file and key != "server_certificate":
                faults.add_at(shown, "is missing", "give the file of the client's")
            elif file and (why := why_unreadable(file)):
                faults.add_at(shown, f"is {file!r}, which {why}", READABLE)


def _check_balancers(config: IncusConfig, faults: ConfigReader) -> None:
    remote, remotes = config.balancers.remote, config.remotes
    is_chosen = remote in remotes or (not remote and len(remotes) < 2)
    if config.balancers.network and not is_chosen:
        place, remedy = "[LoadBalancer] remote", f"name one of {', '.join(remotes)}"
        faults.add_at(place, f"is {remote!r}", remedy)


def _completed(config: IncusConfig) -> IncusConfig:
    """With what follows from other keys."""
    remotes = {
        name: replace(one, region=one.region or name or urlsplit(one.url).hostname or "local")
        for name, one in config.remotes.items()
    }
    balancers = config.balancers
    remote = balancers.remote if balancers.remote in remotes else next(iter(remotes))
    project = balancers.project or remotes[remote].project[0]
    return replace(
        config,
        remotes=remotes,
        nodes=replace(config.nodes, network=config.nodes.network or balancers.network),
        balancers=replace(balancers, remote=remote, project=project),
    )


def _url(value: str) -> str:
    url = urlsplit(value)
    is_https = url.scheme == "https" and url.hostname and url.path in ("", "/") and not url.query
    is_socket = url.scheme == "unix" and not url.netloc and url.path.startswith("/")
    if not (is_https or is_socket) or url.username:
        raise ValueError(value)
    return value.rstrip("/")


def _name(value: str) -> str:
    """The name of a project or network, which goes into paths."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", value):
        raise ValueError(value)
    return value


def _range(value: str) -> Network:
    """A network, or one address."""
    return ip_network(value if "/" in value else str(ip_address(value)))


def _choice(*choices: str) -> Reading:
    return one_of(choices), f"use {', '.join(choices)}"


_COUNT = number_within(1, LONGEST_CHECK), f"give 1 to {LONGEST_CHECK}"
READINGS: Mapping[str, Reading] = {
    "url": (_url, "give https://host:8443 or unix:///path"),
    "project": (_name, "give the name of a project"),
    "network": (_name, "give the name of a network"),
    "mode": _choice(BALANCE, FORWARD),
    "on-ovn": _choice(STOPPED, REPLUG),
    "address-range": (_range, "give a network as 192.0.2.0/24, or an address"),
    "health-check-interval": _COUNT,
    "health-check-timeout": _COUNT,
    "health-check-success-count": _COUNT,
    "health-check-failure-count": _COUNT,
}
