"""The --cloud-config file, as Proxmox' other controller has it; all faults are reported at once."""

import re
from dataclasses import dataclass, fields

from ccm.cloud.config_file import (
    choice,
    network,
    of_form,
    url,
    why_no_certificate,
)
from ccm.cloud.credentials import TOKEN, SecretText
from ccm.cloud.sections import setting
from ccm.cloud.yaml_file import YamlReader
from ccm.model.cloud import Network
from ccm.providers.proxmox.ids import REGION
from ccm.redaction import register_hidden
from ccm.yaml_document import YamlMapping

DEFAULT, QEMU, AUTO, CAPMOX = "default", "qemu", "auto", "capmox"
TOKEN_ID = re.compile(r"[^\s!@:]+@[^\s!@:]+![A-Za-z][A-Za-z0-9._-]*")


def _url(value: str) -> str:
    return url(value, paths=("", "/api2/json")).removesuffix("/api2/json")


def _cidr(value: str) -> tuple[Network, bool]:
    """A network, and whether it is to be left out."""
    return network(value.removeprefix("!")), value.startswith("!")


_URL = _url, "give https://host:8006, or a list of such"
_CIDR = _cidr, "give networks as 192.0.2.0/24"
_REGION = of_form(REGION, "give the name of a region that a label can have")
_TOKEN_ID = of_form(TOKEN_ID, "give user@realm!name")
_TOKEN_SECRET = of_form(TOKEN, "give its UUID")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Proxmox cluster: its region's name, and hosts that answer for all of it."""

    region: str = setting("", _REGION)
    urls: tuple[str, ...] = setting((), _URL, name="url", separator=",")
    ca_file: str = ""
    token_id: str = setting("", _TOKEN_ID, is_secret=True)
    token_id_file: str = ""
    token_secret: str = setting("", _TOKEN_SECRET, is_secret=True)
    token_secret_file: str = ""

    def __post_init__(self) -> None:
        register_hidden(self)

    @property
    def secrets(self) -> tuple[SecretText, SecretText]:
        """The ID of the token, and the token."""
        return (
            SecretText("token_id", self.token_id, self.token_id_file, TOKEN_ID, "_file"),
            SecretText("token_secret", self.token_secret, self.token_secret_file, suffix="_file"),
        )


@dataclass(frozen=True, slots=True)
class ClusterSection(Cluster):
    """An entry of `clusters`: upstream's keys."""

    insecure: bool = False
    username: str = ""
    password: str = setting("", is_secret=True)


@dataclass(frozen=True, slots=True)
class FeatureSection:
    """`features`."""

    provider: str = setting(DEFAULT, choice(DEFAULT, CAPMOX))
    ha_group: bool = False
    force_update_labels: bool = False


@dataclass(frozen=True, slots=True)
class AddressSection:
    """`features.network`."""

    mode: str = setting(DEFAULT, choice(DEFAULT, QEMU, AUTO))
    ipv6_support_disabled: bool = False
    external_ip_cidrs: tuple[tuple[Network, bool], ...] = setting((), _CIDR, separator=",")
    ip_sort_order: tuple[tuple[Network, bool], ...] = setting((), _CIDR, separator=",")


@dataclass(frozen=True, slots=True)
class NetworkSection:
    """Where the addresses of Nodes are from, and what they are."""

    mode: str = DEFAULT
    has_ipv6: bool = True
    external: tuple[Network, ...] = ()
    excluded: tuple[Network, ...] = ()
    order: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class ProxmoxConfig:
    """What the file says."""

    clusters: tuple[Cluster, ...]
    network: NetworkSection = NetworkSection()
    has_uuid_ids: bool = False


def read_config(content: bytes, path: str) -> ProxmoxConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    reader = YamlReader(path)
    root = reader.parse(content, "clusters")
    reader.check_keys(root, "", ("clusters", "features"))
    raw = reader.mapping(root, "features")
    features = reader.read(FeatureSection, raw, "features", ("network",))
    if features.ha_group:
        remedy = "remove it: Proxmox VE 9 has no HA groups; a Node's zone is its machine's host"
        reader.faults.add("features ha_group", "is not supported", remedy)
    addresses = reader.read(
        AddressSection, reader.mapping(raw, "network", "features"), "features network"
    )
    config = ProxmoxConfig(
        clusters=_read_clusters(reader, root),
        network=NetworkSection(
            mode=addresses.mode,
            has_ipv6=not addresses.ipv6_support_disabled,
            external=tuple(item for item, is_out in addresses.external_ip_cidrs if not is_out),
            excluded=tuple(item for item, is_out in addresses.external_ip_cidrs if is_out),
            order=tuple(item for item, _ in addresses.ip_sort_order),
        ),
        has_uuid_ids=features.provider == CAPMOX,
    )
    reader.faults.check()
    return config


def _read_clusters(reader: YamlReader, root: YamlMapping) -> tuple[Cluster, ...]:
    entries = root.get("clusters")
    reader.faults.origins["clusters"] = root.lines.get("clusters", 0)
    if not isinstance(entries, list) or not entries:
        remedy = "give a list with url, region and token of each"
        reader.faults.add("clusters", "is missing", remedy)
        return ()
    found = [_read_cluster(reader, at, raw) for at, raw in enumerate(entries, 1)]
    regions = [item.region for item in found if item.region]
    for region in sorted({item for item in regions if regions.count(item) > 1}):
        reader.faults.add("clusters", f"have region {region!r} twice", "give each its own")
    return tuple(found)


def _read_cluster(reader: YamlReader, at: int, value: object) -> Cluster:
    place, faults = f"clusters {at}", reader.faults
    raw = reader.as_mapping(value, place)
    faults.origins[place] = min(raw.lines.values(), default=0)
    found = reader.read(ClusterSection, raw, place)
    for key, reading in (("region", _REGION), ("url", _URL)):
        if f"{place} {key}" not in faults.origins:
            faults.add(f"{place} {key}", "is missing", reading[1])
    if why := found.ca_file and why_no_certificate(found.ca_file):
        faults.add(f"{place} ca_file", why, "give the cluster's /etc/pve/pve-root-ca.pem")
    if found.insecure:
        remedy = "give the cluster's /etc/pve/pve-root-ca.pem as ca_file"
        problem = "is not supported: any server that answers would get the token"
        faults.add(f"{place} insecure", problem, remedy)
    if found.username or found.password:
        remedy = "give token_id and token_secret of a token with few rights"
        faults.add(f"{place} username", "is not supported", remedy)
    for secret in found.secrets:
        secret.check(faults, f"give {secret.key} or {secret.key}_file", place)
    return Cluster(*(getattr(found, field.name) for field in fields(Cluster)))
