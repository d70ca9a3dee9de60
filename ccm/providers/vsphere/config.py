"""The --cloud-config file of upstream's controller, YAML or INI; all faults are told at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ccm.cloud.config_file import boolean, why_no_certificate
from ccm.cloud.ini_file import IniEntry, IniError, parse_ini
from ccm.cloud.yaml_file import YamlReader
from ccm.model.cloud import Network, read_network
from ccm.model.objects import mapping

IPV4, IPV6 = "ipv4", "ipv6"
DEFAULT_PORT = 443
DEFAULT_SECRETS = "/etc/cloud/secrets"
THUMBPRINT_SIZES = (40, 64)  # hexadecimal digits of SHA-1 and of SHA-256

_LOGIN = ("user", "password", "secretName", "secretNamespace")
_TLS = ("insecureFlag", "caFile", "thumbprint")
_SERVER = ("server", "port", *_LOGIN, *_TLS, "datacenters", "ipFamily", "soapRoundtripCount")
_NO_EFFECT = ("apiDisable", "apiBinding")
_GLOBAL = (*_SERVER, "secretsDirectory", *_NO_EFFECT)
_NODES = (
    "internalNetworkSubnetCidr",
    "externalNetworkSubnetCidr",
    "internalVmNetworkName",
    "externalVmNetworkName",
    "excludeInternalNetworkSubnetCidr",
    "excludeExternalNetworkSubnetCidr",
)
_NSXT = ("nsxt", "loadBalancer", "loadBalancerClass", "route")
_SECTIONS = ("global", "vcenter", "labels", "nodes")
_SWITCHES = ("insecure-flag", "api-disable")  # of INI
_IN_TREE = ("workspace", "disk", "network")  # what Kubernetes once read itself; without effect
_INI_SECTIONS = {"virtualcenter": "vcenter", "loadbalancer": "loadBalancer"}


@dataclass(frozen=True, slots=True)
class VCenter:
    """A vCenter: what the file calls it, where it is, and who we are to it."""

    name: str
    server: str
    port: int = DEFAULT_PORT
    user: str = ""
    password: str = field(default="", repr=False)
    secret_name: str = ""
    secret_namespace: str = ""
    secrets_directory: str = ""
    ca_file: str = ""
    thumbprint: str = ""
    datacenters: tuple[str, ...] = ()
    families: tuple[str, ...] = (IPV4,)

    @property
    def url(self) -> str:
        host = f"[{self.server}]" if ":" in self.server else self.server
        return f"https://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AddressRules:
    """`nodes`: which of a machine's addresses is the internal one, and which the external."""

    networks: tuple[Network, ...] = ()
    network_name: str = ""
    excluded: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class VsphereConfig:
    """What the file says."""

    vcenters: tuple[VCenter, ...]
    region_category: str = ""
    zone_category: str = ""
    internal: AddressRules = AddressRules()
    external: AddressRules = AddressRules()


def read_config(content: bytes, path: str) -> VsphereConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    reader = YamlReader(path, "global")
    raw = _parse(reader, content, path)
    for section in sorted(raw.keys() & set(_NSXT)):
        remedy = "remove it, and leave balancers and routes to another controller"
        reader.fault(section, "is not supported: NSX-T", remedy)
    raw = {key: value for key, value in raw.items() if key not in _NSXT}
    raw = reader.mapping("", raw, _SECTIONS)
    labels = reader.mapping("labels", raw.get("labels"), ("region", "zone"))
    region, zone = (reader.text("labels", labels, key) for key in ("region", "zone"))
    if bool(region) != bool(zone):
        problem = "has only one of region and zone"
        reader.fault("labels", problem, "name the tag categories of both")
    nodes = reader.mapping("nodes", raw.get("nodes"), _NODES)
    config = VsphereConfig(
        vcenters=tuple(_read_vcenters(reader, raw)),
        region_category=region,
        zone_category=zone,
        internal=_read_rules(reader, nodes, "internal"),
        external=_read_rules(reader, nodes, "external"),
    )
    reader.check()
    return config


def _parse(reader: YamlReader, content: bytes, path: str) -> Mapping[str, Any]:
    """The sections by the names that they and their keys have in YAML."""
    lines = [line.strip() for line in content.splitlines()]
    written = [line for line in lines if line and line[:1] not in (b"#", b";")]
    if not written or not written[0].startswith(b"["):
        return reader.parse(content)
    sections: dict[str, Any] = {}
    try:
        parsed = parse_ini(content)
    except IniError as error:
        reader.fault("", error.problem, error.remedy, error.line)
        reader.check()
        raise
    for (title, name), one in parsed.items():
        if title in _IN_TREE:
            continue
        section = _INI_SECTIONS.get(title, title)
        found = sections.setdefault(section, {})
        if section == "vcenter":
            found = found.setdefault(name, {})
        found.update({_camel(entry.key): _plain(entry) for entry in one.entries})
    for name, vcenter in mapping(sections.get("vcenter")).items():
        vcenter.setdefault("server", name)
    return sections


def _plain(entry: IniEntry) -> str | bool:
    """Its value; that of a switch is one, if it is understood."""
    try:
        value = "true" if entry.value is None else entry.value
        return boolean(value) if entry.key in _SWITCHES else value
    except ValueError:
        return value


def _camel(key: str) -> str:
    first, *rest = key.split("-")
    return first + "".join(word.capitalize() for word in rest)


def _number(reader: YamlReader, place: str, raw: Mapping[str, Any], key: str, highest: int) -> int:
    """A whole number, as text in INI; 0 where there is none."""
    value = reader.text(place, raw, key) or "0"
    if not value.isdecimal() or int(value) > highest:
        reader.fault(f"{place} {key}", f"is {value!r}", f"give a number up to {highest}")
        return 0
    return int(value)


def _read_vcenters(reader: YamlReader, raw: Mapping[str, Any]) -> list[VCenter]:
    shared = reader.mapping("global", raw.get("global"), _GLOBAL)
    entries = dict(reader.mapping("vcenter", raw.get("vcenter")))
    server = reader.text("global", shared, "server")
    if server and server not in entries:
        entries[server] = {"server": server}
    if not entries:
        reader.fault("vcenter", "is missing", "name one or more, each with its server")
    found = [_read_vcenter(reader, str(name), one, shared) for name, one in entries.items()]
    servers = [(one.server, one.port) for one in found]
    for server, port in sorted({one for one in servers if servers.count(one) > 1}):
        reader.fault("vcenter", f"has {server}:{port} twice", "remove one of them")
    return found


def _read_vcenter(
    reader: YamlReader, name: str, value: object, shared: Mapping[str, Any]
) -> VCenter:
    place = f"vcenter {name}"
    own = reader.mapping(place, value, _SERVER)
    both = {**{key: one for key, one in shared.items() if key in _SERVER}, **own}
    server = reader.text(place, own, "server")
    if not server or urlsplit(f"//{server}").path or "@" in server:
        reader.fault(f"{place} server", "is missing or is none", "give a host name or an IP")
    if reader.boolean(place, both, "insecureFlag"):
        problem = "is not supported: whoever answers would get the password"
        reader.fault(f"{place} insecureFlag", problem, "give caFile, or thumbprint of the server")
    _number(reader, place, both, "soapRoundtripCount", 1000)
    ca_file = reader.text(place, both, "caFile")
    if why := ca_file and why_no_certificate(ca_file):
        remedy = "give the file of the authority's certificate, or of the server's own"
        reader.fault(f"{place} caFile", why, remedy)
    return VCenter(
        name=name,
        server=server.strip("[]"),
        port=_number(reader, place, both, "port", 65535) or DEFAULT_PORT,
        ca_file=ca_file,
        thumbprint=_read_thumbprint(reader, place, both),
        datacenters=reader.words(place, both, "datacenters"),
        families=_read_families(reader, place, both),
        **_read_login(reader, place, own, shared),
    )


def _read_login(
    reader: YamlReader, place: str, own: Mapping[str, Any], shared: Mapping[str, Any]
) -> dict[str, str]:
    """A Secret or user and password, its own before those of all; or a directory of all."""
    secrets = [(raw.get("secretName"), raw.get("secretNamespace")) for raw in (own, shared)]
    if any(bool(name) != bool(namespace) for name, namespace in secrets):
        remedy = "give secretName and secretNamespace"
        reader.fault(f"{place} secretName", "is one half of a Secret", remedy)
    has_own_login = any(own.get(key) for key in ("user", "password"))
    chosen = own if own.get("secretName") or has_own_login else shared
    directory = reader.text("global", shared, "secretsDirectory")
    both = {**shared, **own}
    login = {
        "user": reader.text(place, both, "user"),
        "password": reader.text(place, both, "password"),
        "secret_name": reader.text(place, chosen, "secretName"),
        "secret_namespace": reader.text(place, chosen, "secretNamespace"),
    }
    if directory and shared.get("secretName"):
        reader.fault("global secretsDirectory", "stands beside a Secret", "remove one of them")
    if not directory and not login["secret_name"] and not login["user"]:
        directory = DEFAULT_SECRETS if Path(DEFAULT_SECRETS).is_dir() else ""
    has_login = login["user"] and login["password"]
    if not (has_login or login["secret_name"] or directory):
        remedy = "give user and password, secretName and secretNamespace, or secretsDirectory"
        reader.fault(place, "has no credentials", remedy)
    return login | ({} if login["secret_name"] else {"secrets_directory": directory})


def _read_thumbprint(reader: YamlReader, place: str, raw: Mapping[str, Any]) -> str:
    written = reader.text(place, raw, "thumbprint").replace(":", "").lower()
    is_right = len(written) in THUMBPRINT_SIZES and set(written) <= set("0123456789abcdef")
    if written and not is_right:
        remedy = "give SHA-256 of the certificate, as openssl x509 -fingerprint -sha256 prints it"
        reader.fault(f"{place} thumbprint", "has not the form", remedy)
        return ""
    return written


def _read_families(reader: YamlReader, place: str, raw: Mapping[str, Any]) -> tuple[str, ...]:
    found = tuple(one.lower() for one in reader.words(place, raw, "ipFamily"))
    if set(found) - {IPV4, IPV6} or len(found) != len(set(found)):
        reader.fault(f"{place} ipFamily", f"is {', '.join(found)}", f"use {IPV4}, {IPV6} or both")
    return found or (IPV4,)


def _read_rules(reader: YamlReader, nodes: Mapping[str, Any], which: str) -> AddressRules:
    keys = f"{which}NetworkSubnetCidr", f"exclude{which.capitalize()}NetworkSubnetCidr"
    networks, excluded = (_read_networks(reader, nodes, key) for key in keys)
    return AddressRules(networks, reader.text("nodes", nodes, f"{which}VmNetworkName"), excluded)


def _read_networks(reader: YamlReader, nodes: Mapping[str, Any], key: str) -> tuple[Network, ...]:
    words = reader.words("nodes", nodes, key)
    found = [(word, read_network(word)) for word in words]
    for word, network in found:
        if network is None:
            reader.fault(f"nodes {key}", f"has {word!r}", "give networks as 192.0.2.0/24")
    return tuple(network for _, network in found if network)
