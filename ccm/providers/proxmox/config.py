"""The --cloud-config file, as Proxmox' other controller has it; all faults are told at once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from ccm.cloud.config_file import READABLE, why_no_certificate, why_unreadable
from ccm.cloud.yaml_file import YamlReader
from ccm.model.cloud import Network
from ccm.model.objects import text
from ccm.providers.proxmox.ids import REGION

DEFAULT, QEMU, AUTO, CAPMOX = "default", "qemu", "auto", "capmox"
TOKEN_ID = re.compile(r"[^\s!@:]+@[^\s!@:]+![A-Za-z][A-Za-z0-9._-]*")
TOKEN_SECRET = re.compile(r"[!-~]+")

_FEATURES = ("provider", "network", "ha_group", "force_update_labels")
_NETWORK = ("mode", "ipv6_support_disabled", "external_ip_cidrs", "ip_sort_order")
_LOGIN = ("token_id", "token_id_file", "token_secret", "token_secret_file")
_CLUSTER = ("region", "url", "ca_file", *_LOGIN, "insecure", "username", "password")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Proxmox cluster: its region's name, and hosts that answer for all of it."""

    region: str
    urls: tuple[str, ...]
    ca_file: str = ""
    token_id: str = ""
    token_id_file: str = ""
    token_secret: str = field(default="", repr=False)
    token_secret_file: str = ""


@dataclass(frozen=True, slots=True)
class NetworkSection:
    """`features.network`: where the addresses of Nodes are from, and what they are."""

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
    reader = YamlReader(path, "clusters")
    raw = reader.mapping("", reader.parse(content), ("features", "clusters"))
    features = reader.mapping("features", raw.get("features"), _FEATURES)
    if reader.boolean("features", features, "ha_group"):
        remedy = "remove it: Proxmox VE 9 has no HA groups; a Node's zone is its machine's host"
        reader.fault("features ha_group", "is not supported", remedy)
    reader.boolean("features", features, "force_update_labels")
    provider = reader.choice("features", features, "provider", (DEFAULT, CAPMOX))
    config = ProxmoxConfig(
        clusters=_read_clusters(reader, raw.get("clusters")),
        network=_read_network(reader, features.get("network")),
        has_uuid_ids=provider == CAPMOX,
    )
    reader.check()
    return config


def _read_network(reader: YamlReader, value: object) -> NetworkSection:
    place = "features network"
    raw = reader.mapping(place, value, _NETWORK)
    reading = _is_cidr, "give networks as 192.0.2.0/24"
    cidrs = [
        reader.words(place, raw, key, reading) for key in ("external_ip_cidrs", "ip_sort_order")
    ]
    external, order = ([one for one in some if _is_network(one)] for some in cidrs)
    return NetworkSection(
        mode=reader.choice(place, raw, "mode", (DEFAULT, QEMU, AUTO)),
        has_ipv6=not reader.boolean(place, raw, "ipv6_support_disabled"),
        external=tuple(ip_network(one) for one in external if one[0] != "!"),
        excluded=tuple(ip_network(one[1:]) for one in external if one[0] == "!"),
        order=tuple(ip_network(one.removeprefix("!")) for one in order),
    )


def _read_clusters(reader: YamlReader, value: object) -> tuple[Cluster, ...]:
    if not isinstance(value, list) or not value:
        reader.fault("clusters", "is missing", "give a list with url, region and token of each")
        return ()
    found = [_read_cluster(reader, at, raw) for at, raw in enumerate(value, 1)]
    regions = [one.region for one in found if one.region]
    for region in sorted({one for one in regions if regions.count(one) > 1}):
        reader.fault("clusters", f"have region {region!r} twice", "give each its own")
    return tuple(found)


def _read_cluster(reader: YamlReader, at: int, value: object) -> Cluster:
    place = f"clusters {at}"
    raw = reader.mapping(place, value, _CLUSTER)
    region, ca_file = text(raw.get("region")), text(raw.get("ca_file"))
    if not REGION.fullmatch(region):
        remedy = "give the name of a region that a label can have"
        reader.fault(f"{place} region", "is missing or is none", remedy)
    remedy = "give https://host:8006, or a list of such"
    urls = reader.words(place, raw, "url", (_is_url, remedy))
    if not urls:
        reader.fault(f"{place} url", "is missing", remedy)
    if why := raw.get("ca_file") and why_no_certificate(ca_file):
        reader.fault(f"{place} ca_file", why, "give the cluster's /etc/pve/pve-root-ca.pem")
    if reader.boolean(place, raw, "insecure"):
        remedy = "give the cluster's /etc/pve/pve-root-ca.pem as ca_file"
        reader.fault(
            f"{place} insecure", "is not supported: whoever answers gets the token", remedy
        )
    _check_login(reader, place, raw)
    hosts = tuple(one.rstrip("/").removesuffix("/api2/json") for one in urls)
    login = {key: text(raw.get(key)) for key in _LOGIN}
    return Cluster(region, hosts, ca_file, **login)


def _check_login(reader: YamlReader, place: str, raw: Mapping[str, Any]) -> None:
    """Exactly one token, in the file or in files of its own, which may change."""
    if raw.get("username") or raw.get("password"):
        remedy = "give token_id and token_secret of a token with few rights"
        reader.fault(f"{place} username", "is not supported", remedy)
    forms = ("token_id", TOKEN_ID, "user@realm!name"), ("token_secret", TOKEN_SECRET, "its UUID")
    for key, form, example in forms:
        given, file = raw.get(key), raw.get(f"{key}_file")
        if bool(given) == bool(file):
            problem = "is given twice" if given else "is missing"
            reader.fault(f"{place} {key}", problem, f"give {key} or {key}_file")
        elif given and not form.fullmatch(text(given)):
            reader.fault(f"{place} {key}", "has not the form", f"give {example}")
        elif file and (why := why_unreadable(text(file))):
            reader.fault(f"{place} {key}_file", why, READABLE)


def _is_url(value: str) -> bool:
    url = urlsplit(value)
    is_api = url.path in ("", "/", "/api2/json", "/api2/json/") and not url.query
    return bool(url.scheme == "https" and url.hostname and is_api and not url.username)


def _is_cidr(value: str) -> bool:
    return bool(ip_network(value.removeprefix("!")))


def _is_network(value: str) -> bool:
    try:
        return _is_cidr(value)
    except ValueError:
        return False
