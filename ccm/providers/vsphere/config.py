"""The --cloud-config file of upstream's controller, YAML or INI; all faults are told at once."""

import codecs
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path

from ccm.cloud.config_file import NETWORK, one_of, whole_number, why_no_certificate
from ccm.cloud.sections import INI, Faults, Sections, place_of, setting
from ccm.cloud.yaml_file import YamlReader
from ccm.model.cloud import Network

IPV4, IPV6 = "ipv4", "ipv6"
DEFAULT_PORT = 443
DEFAULT_SECRETS = "/etc/cloud/secrets"
THUMBPRINT_SIZES = (40, 64)  # hexadecimal digits of SHA-1 and of SHA-256
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def _server(value: str) -> str:
    """A host without a port, which has a key of its own."""
    if not _HOST.fullmatch(value):
        ip_address(value.strip("[]"))
    return value.strip("[]")


def _thumbprint(value: str) -> str:
    written = value.replace(":", "").lower()
    if len(written) not in THUMBPRINT_SIZES or not re.fullmatch("[0-9a-f]+", written):
        raise ValueError(value)
    return written


def _port(value: str) -> int | None:
    """0 is none."""
    return whole_number(0, 65535)[0](value) or None


_SERVER = _server, "give a host name or an IP address; the port is a key of its own"
_PORT = _port, "give a number up to 65535"
_THUMBPRINT = (
    _thumbprint,
    "give SHA-256 of the certificate, as openssl x509 -fingerprint -sha256 prints it",
)
_FAMILY = (lambda value: one_of((IPV4, IPV6))(value.lower())), f"use {IPV4}, {IPV6} or both"


@dataclass(frozen=True, slots=True)
class ServerSection:
    """A vCenter's own keys, which hold for all where they are those of the whole file."""

    server: str = setting("", _SERVER)
    port: int = setting(0, _PORT)
    user: str = ""
    password: str = setting("", is_secret=True)
    secret_name: str = ""
    secret_namespace: str = ""
    insecure_flag: bool = False
    ca_file: str = ""
    thumbprint: str = setting("", _THUMBPRINT)
    datacenters: tuple[str, ...] = setting((), separator=",")
    ip_family: tuple[str, ...] = setting((), _FAMILY, separator=",")


@dataclass(frozen=True, slots=True)
class GlobalSection(ServerSection):
    """What holds for each vCenter that says nothing else."""

    secrets_directory: str = ""


@dataclass(frozen=True, slots=True)
class LabelSection:
    """The tag categories that have the region and the zone of a machine."""

    region: str = ""
    zone: str = ""


@dataclass(frozen=True, slots=True)
class NodeSection:
    """Which of a machine's addresses is the internal one, and which the external."""

    internal_network_subnet_cidr: tuple[Network, ...] = setting((), NETWORK, separator=",")
    external_network_subnet_cidr: tuple[Network, ...] = setting((), NETWORK, separator=",")
    internal_vm_network_name: str = ""
    external_vm_network_name: str = ""
    exclude_internal_network_subnet_cidr: tuple[Network, ...] = setting((), NETWORK, separator=",")
    exclude_external_network_subnet_cidr: tuple[Network, ...] = setting((), NETWORK, separator=",")


def camel(name: str) -> str:
    """What YAML calls a field."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_ONE = "VirtualCenter"
_KINDS = {
    "Global": GlobalSection,
    _ONE: ServerSection,
    "Labels": LabelSection,
    "Nodes": NodeSection,
}
_UNUSED = ("soap_roundtrip_count", "api_disable", "api_binding", "tenantref", "secretref")
_IN_TREE = ("datacenter", "datastore", "working-dir", "vm-uuid", "vm-name")
_IN_TREE_SECTIONS = ("Workspace", "Disk", "Network")
"""What Kubernetes once read itself, without effect as the keys before."""
_NSXT = ("nsxt", "loadBalancer", "loadBalancerClass", "route")


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


@dataclass(frozen=True, slots=True)
class _File:
    """The sections of a file in either form; `place` is where a section is, by title and name."""

    faults: Faults
    spell: Callable[[str], str]
    place: Callable[[str, str], str]
    common: GlobalSection
    vcenters: Mapping[str, ServerSection]
    labels: LabelSection
    nodes: NodeSection

    def add(self, vcenter: str, field_name: str, problem: str, remedy: str) -> None:
        """Record a fault of a vCenter's field, which may be one for all."""
        key = self.spell(field_name)
        own, common = (f"{self.place(*at)} {key}" for at in ((_ONE, vcenter), ("Global", "")))
        is_common = own not in self.faults.origins and common in self.faults.origins
        self.faults.add(common if is_common else own, problem, remedy)


def read_config(content: bytes, path: str) -> VsphereConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    file = _read_ini(content, path) if _is_ini(content) else _read_yaml(content, path)
    labels, nodes = file.labels, file.nodes
    if bool(labels.region) != bool(labels.zone):
        problem = "has only one of region and zone"
        file.faults.add(file.place("Labels", ""), problem, "name the tag categories of both")
    config = VsphereConfig(
        vcenters=tuple(_vcenters(file)),
        region_category=labels.region,
        zone_category=labels.zone,
        internal=AddressRules(
            nodes.internal_network_subnet_cidr,
            nodes.internal_vm_network_name,
            nodes.exclude_internal_network_subnet_cidr,
        ),
        external=AddressRules(
            nodes.external_network_subnet_cidr,
            nodes.external_vm_network_name,
            nodes.exclude_external_network_subnet_cidr,
        ),
    )
    file.faults.check()
    return config


def _is_ini(content: bytes) -> bool:
    lines = [line.strip() for line in content.removeprefix(codecs.BOM_UTF8).splitlines()]
    written = [line for line in lines if line and line[:1] not in (b"#", b";")]
    return bool(written) and written[0].startswith(b"[")


def _read_ini(content: bytes, path: str) -> _File:
    unused = [INI.spell(one) for one in _UNUSED]
    sections = Sections(
        content,
        path,
        _KINDS,
        named=(_ONE,),
        unused={
            "Global": (*unused, *_IN_TREE),
            _ONE: unused,
            **dict.fromkeys((*_IN_TREE_SECTIONS, *_NSXT), ()),
        },
    )
    file = _File(
        sections.faults,
        INI.spell,
        place_of,
        sections.read(GlobalSection),
        {
            name: one if one.server else replace(one, server=_read_name(name, sections.faults))
            for name, one in sections.read_named(ServerSection).items()
        },
        sections.read(LabelSection),
        sections.read(NodeSection),
    )
    _refuse_nsxt(sections.faults, sections.places)
    return file


def _read_name(name: str, faults: Faults) -> str:
    """In INI the name of a section is the address of what has no other."""
    place = place_of(_ONE, name)
    if f"{place} server" in faults.origins:
        return ""
    faults.origins[f"{place} server"] = faults.origins[place]
    try:
        return _server(name)
    except ValueError:
        faults.add(place, "is not an address", _SERVER[1])
        return ""


def _read_yaml(content: bytes, path: str) -> _File:
    reader = YamlReader(path, camel, merges=True)
    root = reader.parse(content, "global")
    reader.check_keys(root, "", ("global", "vcenter", "labels", "nodes", *_NSXT))
    unused = [camel(one) for one in _UNUSED]
    common, entries, labels, nodes = (
        reader.mapping(root, key) for key in ("global", "vcenter", "labels", "nodes")
    )
    vcenters = {name: reader.mapping(entries, name, "vcenter") for name in entries}
    file = _File(
        reader.faults,
        camel,
        _yaml_place,
        reader.read(GlobalSection, common, "global", unused),
        {
            name: reader.read(ServerSection, one, f"vcenter {name}", unused)
            for name, one in vcenters.items()
        },
        reader.read(LabelSection, labels, "labels"),
        reader.read(NodeSection, nodes, "nodes"),
    )
    _refuse_nsxt(reader.faults, {key.lower(): key for key in root})
    return file


def _yaml_place(title: str, name: str) -> str:
    return f"vcenter {name}".strip() if title == _ONE else title.lower()


def _refuse_nsxt(faults: Faults, places: Mapping[str, str]) -> None:
    """Those of sections by their titles."""
    for title in places.keys() & set(map(str.lower, _NSXT)):
        remedy = "remove it, and leave balancers and routes to another controller"
        faults.add(places[title], "is not supported: NSX-T", remedy)


def _vcenters(file: _File) -> Iterator[VCenter]:
    entries, common = dict(file.vcenters), file.common
    if common.server and common.server not in entries:
        entries[common.server] = ServerSection(server=common.server)
    if not entries:
        file.faults.add("vcenter", "is missing", "name one or more, each with its server")
    hosts = set[tuple[str, int]]()
    for name, own in entries.items():
        found = _vcenter(file, name, own)
        if (host := (found.server, found.port)) in hosts and found.server:
            problem = f"has {found.server}:{found.port} twice"
            file.faults.add(file.place(_ONE, ""), problem, "remove one of them")
        hosts.add(host)
        yield found


def _vcenter(file: _File, name: str, own: ServerSection) -> VCenter:
    """With what holds for all where it has nothing of its own."""
    names = [one.name for one in fields(ServerSection) if one.name != "server"]
    both = replace(own, **{one: getattr(own, one) or getattr(file.common, one) for one in names})
    if not own.server and f"{file.place(_ONE, name)} server" not in file.faults.origins:
        file.add(name, "server", "is missing", _SERVER[1])
    if both.insecure_flag:
        problem = "is not supported: whoever answers would get the password"
        file.add(name, "insecure_flag", problem, "give caFile, or thumbprint of the server")
    if why := both.ca_file and why_no_certificate(both.ca_file):
        remedy = "give the file of the authority's certificate, or of the server's own"
        file.add(name, "ca_file", why, remedy)
    if len(both.ip_family) != len(set(both.ip_family)):
        file.add(name, "ip_family", f"is {', '.join(both.ip_family)}", _FAMILY[1])
    return VCenter(
        name=name,
        server=own.server,
        port=both.port or DEFAULT_PORT,
        ca_file=both.ca_file,
        thumbprint=both.thumbprint,
        datacenters=both.datacenters,
        families=both.ip_family or (IPV4,),
        **_login(file, name, own),
    )


def _login(file: _File, name: str, own: ServerSection) -> dict[str, str]:
    """A Secret or user and password, its own before those of all; or a directory of all."""
    common = file.common
    if any(bool(one.secret_name) != bool(one.secret_namespace) for one in (own, common)):
        remedy = "give secretName and secretNamespace"
        file.add(name, "secret_name", "is one half of a Secret", remedy)
    chosen = own if own.secret_name or own.user or own.password else common
    login = {
        "user": own.user or common.user,
        "password": own.password or common.password,
        "secret_name": chosen.secret_name,
        "secret_namespace": chosen.secret_namespace,
    }
    directory = common.secrets_directory
    if directory and common.secret_name:
        place = f"{file.place('Global', '')} {file.spell('secrets_directory')}"
        file.faults.add(place, "stands beside a Secret", "remove one of them")
    if not directory and not login["secret_name"] and not login["user"]:
        directory = DEFAULT_SECRETS if Path(DEFAULT_SECRETS).is_dir() else ""
    has_login = login["user"] and login["password"]
    if not (has_login or login["secret_name"] or directory):
        remedy = "give user and password, secretName and secretNamespace, or secretsDirectory"
        file.faults.add(file.place(_ONE, name), "has no credentials", remedy)
    return login | ({} if login["secret_name"] else {"secrets_directory": directory})
