"""The --cloud-config file, as Proxmox' other controller has it; all faults are told at once."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from ccm.cloud.config_file import ConfigReader
from ccm.model.cloud import Network
from ccm.model.objects import mapping, text
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
    reader = _Reader(path)
    raw = reader.mapping("", reader.parse(content), ("features", "clusters"))
    features = reader.mapping("features", raw.get("features"), _FEATURES)
    if reader.boolean("features ha_group", features.get("ha_group")):
        remedy = "remove it: Proxmox VE 9 has no HA groups; a Node's zone is its machine's host"
        reader.fault("features ha_group", "is not supported", remedy)
    reader.boolean("features force_update_labels", features.get("force_update_labels"))
    provider = features.get("provider", DEFAULT)
    config = ProxmoxConfig(
        clusters=_read_clusters(reader, raw.get("clusters")),
        network=_read_network(reader, features.get("network")),
        has_uuid_ids=reader.choice("features provider", provider, (DEFAULT, CAPMOX)) == CAPMOX,
    )
    reader.check()
    return config


class _Reader:
    """Reads values of YAML, and collects what is wrong with them; secrets are never shown."""

    def __init__(self, path: str) -> None:
        self._faults = ConfigReader(path, "", (), {})

    def parse(self, content: bytes) -> object:
        """The document; what is none is a fault, and reads as an empty one."""
        try:
            return yaml.safe_load(content) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as wrong:
            mark = getattr(wrong, "problem_mark", None)
            where = f": line {mark.line + 1} is not understood" if mark else ""
            self.fault("", f"is not YAML{where}", "start it with clusters:")
            self.check()
            raise

    def check(self) -> None:
        """Raise all faults."""
        self._faults.check()

    def fault(self, place: str, problem: str, remedy: str) -> None:
        self._faults.add_at(place, problem, remedy)

    def mapping(self, place: str, value: object, keys: Sequence[str]) -> Mapping[str, Any]:
        """A mapping of these keys."""
        if value is not None and not isinstance(value, dict):
            self.fault(place, "is no mapping", f"give it {', '.join(keys)}")
        found = mapping(value)
        for key in found.keys() - set(keys):
            remedy = f"remove it or use one of {', '.join(keys)}"
            self.fault(f"{place} {key}".strip(), "is not a key of this file", remedy)
        return found

    def boolean(self, place: str, value: object) -> bool:
        if value not in (None, True, False):
            self.fault(place, f"is {value!r}", "give true or false")
        return value is True

    def choice(self, place: str, value: object, choices: Sequence[str]) -> str:
        if value not in choices:
            self.fault(place, f"is {value!r}", f"use {', '.join(choices)}")
        return text(value)

    def words(
        self, place: str, value: object, is_right: Callable[[str], object], remedy: str
    ) -> tuple[str, ...]:
        """A list, or text with commas; `is_right` raises ValueError or is falsy for a wrong one."""
        some = value.split(",") if isinstance(value, str) else [] if value is None else value
        if not isinstance(some, list) or not all(isinstance(one, str) for one in some):
            self.fault(place, "is no list of texts", remedy)
            return ()
        found = tuple(one.strip() for one in some if one.strip())
        for one in found:
            try:
                if is_right(one):
                    continue
            except ValueError:
                pass
            shown = "has a value with credentials" if "@" in one else f"has {one!r}"
            self.fault(place, shown, remedy)
        return found


def _read_network(reader: _Reader, value: object) -> NetworkSection:
    place = "features network"
    raw = reader.mapping(place, value, _NETWORK)
    cidrs = [
        reader.words(f"{place} {key}", raw.get(key), _is_cidr, "give networks as 192.0.2.0/24")
        for key in ("external_ip_cidrs", "ip_sort_order")
    ]
    external, order = ([one for one in some if _is_network(one)] for some in cidrs)
    return NetworkSection(
        mode=reader.choice(f"{place} mode", raw.get("mode", DEFAULT), (DEFAULT, QEMU, AUTO)),
        has_ipv6=not reader.boolean(
            f"{place} ipv6_support_disabled", raw.get("ipv6_support_disabled")
        ),
        external=tuple(ip_network(one) for one in external if one[0] != "!"),
        excluded=tuple(ip_network(one[1:]) for one in external if one[0] == "!"),
        order=tuple(ip_network(one.removeprefix("!")) for one in order),
    )


def _read_clusters(reader: _Reader, value: object) -> tuple[Cluster, ...]:
    if not isinstance(value, list) or not value:
        reader.fault("clusters", "is missing", "give a list with url, region and token of each")
        return ()
    found = [_read_cluster(reader, at, raw) for at, raw in enumerate(value, 1)]
    regions = [one.region for one in found if one.region]
    for region in sorted({one for one in regions if regions.count(one) > 1}):
        reader.fault("clusters", f"have region {region!r} twice", "give each its own")
    return tuple(found)


def _read_cluster(reader: _Reader, at: int, value: object) -> Cluster:
    place = f"clusters {at}"
    raw = reader.mapping(place, value, _CLUSTER)
    region, ca_file = text(raw.get("region")), text(raw.get("ca_file"))
    if not REGION.fullmatch(region):
        remedy = "give the name of a region that a label can have"
        reader.fault(f"{place} region", "is missing or is none", remedy)
    remedy = "give https://host:8006, or a list of such"
    urls = reader.words(f"{place} url", raw.get("url"), _is_url, remedy)
    if not urls:
        reader.fault(f"{place} url", "is missing", remedy)
    if raw.get("ca_file") and not Path(ca_file).is_file():
        reader.fault(f"{place} ca_file", f"is {raw['ca_file']!r}, which is no file", "give a PEM")
    if reader.boolean(f"{place} insecure", raw.get("insecure")):
        remedy = "give the cluster's /etc/pve/pve-root-ca.pem as ca_file"
        reader.fault(
            f"{place} insecure", "is not supported: whoever answers gets the token", remedy
        )
    _check_login(reader, place, raw)
    hosts = tuple(one.rstrip("/").removesuffix("/api2/json") for one in urls)
    login = {key: text(raw.get(key)) for key in _LOGIN}
    return Cluster(region, hosts, ca_file, **login)


def _check_login(reader: _Reader, place: str, raw: Mapping[str, Any]) -> None:
    """Exactly one token, in the file or in files of its own, which may change."""
    if raw.get("username") or raw.get("password"):
        remedy = "give token_id and token_secret of a token with few rights"
        reader.fault(f"{place} username", "is not supported", remedy)
    for key, form in (("token_id", TOKEN_ID), ("token_secret", TOKEN_SECRET)):
        given, file = raw.get(key), raw.get(f"{key}_file")
        if bool(given) == bool(file):
            problem = "is given twice" if given else "is missing"
            reader.fault(f"{place} {key}", problem, f"give {key} or {key}_file")
        elif given and not form.fullmatch(text(given)):
            reader.fault(f"{place} {key}", "has not the form", "give user@realm!name and its UUID")
        elif file and not Path(text(file)).is_file():
            reader.fault(f"{place} {key}_file", "names no file", "give one")


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
