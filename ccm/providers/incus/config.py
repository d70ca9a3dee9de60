"""The --cloud-config file, in the format of other clouds'; all its faults are reported at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from ccm.cloud.config_file import (
    READABLE,
    choice,
    network,
    of_form,
    url,
    whole_number,
    why_unreadable,
)
from ccm.cloud.sections import Faults, Sections, place_of, setting
from ccm.model.cloud import Network

BALANCE, FORWARD = "load-balancer", "forward"
STOPPED, REPLUG = "stopped", "replug"
LONGEST_CHECK = 3600  # seconds


def _url(value: str) -> str:
    if not value.startswith("unix:"):
        return url(value)
    return of_form("unix:///[^?#]+", "")[0](value)


def _range(value: str) -> Network:
    """A network, or one address."""
    return network(value) if "/" in value else ip_network(ip_address(value))


_URL = _url, "give https://host:8443 or unix:///path"
_RANGE = _range, "give a network as 192.0.2.0/24, or an address"
_COUNT = whole_number(1, LONGEST_CHECK)
_NAME = of_form("[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "give a name")  # it goes into paths


@dataclass(frozen=True, slots=True)
class Remote:
    """`[Remote "name"]`: an Incus, and the projects in it whose instances are Nodes."""

    url: str = setting("", _URL)
    certificate: str = ""
    key: str = ""
    server_certificate: str = ""
    project: tuple[str, ...] = setting((), _NAME)
    region: str = ""


@dataclass(frozen=True, slots=True)
class NodeSection:
    """`[Node]`: what of an instance becomes what of a Node."""

    network: str = setting("", _NAME)  # whose addresses come first
    zone_key: str = ""  # of an instance's configuration, which its users write
    zone_group_prefix: str = ""  # of a group of cluster members


@dataclass(frozen=True, slots=True)
class BalancerSection:
    """`[LoadBalancer]`; without a network there are none."""

    remote: str = ""
    project: str = setting("", _NAME)
    network: str = setting("", _NAME)
    mode: str = setting(BALANCE, choice(BALANCE, FORWARD))
    address_range: tuple[Network, ...] = setting((), _RANGE)
    health_check: bool = True
    health_check_interval: int = setting(5, _COUNT)
    health_check_timeout: int = setting(2, _COUNT)
    health_check_success_count: int = setting(2, _COUNT)
    health_check_failure_count: int = setting(2, _COUNT)

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

    on_ovn: str = setting(STOPPED, choice(STOPPED, REPLUG))


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
    "Remote": Remote,
    "Node": NodeSection,
    "LoadBalancer": BalancerSection,
    "Routes": RouteSection,
    "Volumes": VolumeSection,
}


def read_config(content: bytes, path: str) -> IncusConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    sections = Sections(content, path, SECTIONS, named=("Remote",))
    config = IncusConfig(
        remotes=sections.read_named(Remote),
        nodes=sections.read(NodeSection),
        balancers=sections.read(BalancerSection),
        routes=sections.read(RouteSection),
        volumes=sections.read(VolumeSection),
    )
    faults = sections.faults
    _check_remotes(config.remotes, faults)
    _check_balancers(config, faults)
    faults.check()
    return _completed(config)


def _check_remotes(remotes: Mapping[str, Remote], faults: Faults) -> None:
    if not remotes:
        faults.add("[Remote] url", "is missing", "give [Remote] with the url of an Incus")
    named = set[tuple[str, str]]()
    for name, remote in remotes.items():
        place = place_of("Remote", name)
        if not remote.url:
            faults.add(f"{place} url", "is missing", "give https://host:8443 or unix:///path")
        if not remote.project:
            faults.add(f"{place} project", "is missing", "name each project that has Nodes")
        for project in remote.project:
            if (where := (remote.url, project)) in named:
                remedy = "name each project of an Incus once"
                faults.add(f"{place} project", f"has {project!r} twice", remedy)
            named.add(where)
        if not remote.url.startswith("https"):
            continue
        for key in ("certificate", "key", "server_certificate"):
            shown, file = f"{place} {key.replace('_', '-')}", getattr(remote, key)
            if not file and key != "server_certificate":
                faults.add(shown, "is missing", "give the file of the client's")
            elif file and (why := why_unreadable(file)):
                faults.add(shown, f"is {file!r}, which {why}", READABLE)


def _check_balancers(config: IncusConfig, faults: Faults) -> None:
    remote, remotes = config.balancers.remote, config.remotes
    is_chosen = remote in remotes or (not remote and len(remotes) < 2)
    if config.balancers.network and not is_chosen:
        place, remedy = "[LoadBalancer] remote", f"name one of {', '.join(remotes)}"
        faults.add(place, f"is {remote!r}", remedy)


def _completed(config: IncusConfig) -> IncusConfig:
    """With what follows from other keys."""
    remotes = {
        name: replace(item, region=item.region or name or urlsplit(item.url).hostname or "local")
        for name, item in config.remotes.items()
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
