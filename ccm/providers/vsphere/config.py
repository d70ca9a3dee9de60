"""Upstream's --cloud-config file, YAML or INI; all faults are reported at once."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path

from ccm.cloud.config_file import NETWORK, one_of, whole_number, why_no_certificate
from ccm.cloud.sections import INI, Sections, setting
from ccm.cloud.yaml_file import YamlSections
from ccm.model.cloud import Network
from ccm.redaction import register_hidden

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
    """0 means the default port."""
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


_KINDS = {
    "Global": GlobalSection,
    "VirtualCenter": ServerSection,
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

    def __post_init__(self) -> None:
        register_hidden(self)

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
    file = _parse(content, path)
    common, labels = file.read(GlobalSection), file.read(LabelSection)
    vcenters, nodes = file.read_named(ServerSection), file.read(NodeSection)
    for title in file.places.keys() & set(map(str.lower, _NSXT)):
        remedy = "remove it, and leave load balancers and routes to another controller"
        file.faults.add(file.places[title], "is not supported: NSX-T", remedy)
    if bool(labels.region) != bool(labels.zone):
        problem = "has only one of region and zone"
        file.faults.add(file.place(LabelSection), problem, "name the tag categories of both")
    config = VsphereConfig(
        vcenters=tuple(_vcenters(file, common, vcenters)),
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


def _parse(content: bytes, path: str) -> Sections | YamlSections:
    if not _is_ini(content):
        kinds = dict(zip(("global", "vcenter", "labels", "nodes"), _KINDS.values(), strict=True))
        unused = [*map(camel, _UNUSED), *_NSXT]
        return YamlSections(
            content, path, kinds, camel, named=("vcenter",), unused=unused, merges=True
        )
    keys = [*map(INI.spell, _UNUSED), *_IN_TREE]
    sections = dict.fromkeys((*_IN_TREE_SECTIONS, *_NSXT), ())
    unused_of = {"Global": keys, "VirtualCenter": keys, **sections}
    return Sections(content, path, _KINDS, named=("VirtualCenter",), unused=unused_of)


def _vcenters(
    file: Sections | YamlSections, common: GlobalSection, entries: dict[str, ServerSection]
) -> Iterator[VCenter]:
    if common.server and common.server not in entries:
        entries = {**entries, common.server: ServerSection(server=common.server)}
    if not entries:
        file.faults.add("vcenter", "is missing", "name one or more, each with its server")
    hosts = set[tuple[str, int]]()
    for name, own in entries.items():
        found = _Entry(file, common, name, own).read()
        if (host := (found.server, found.port)) in hosts and found.server:
            problem = f"has {found.server}:{found.port} twice"
            file.faults.add(file.place(ServerSection), problem, "remove one of them")
        hosts.add(host)
        yield found


@dataclass(frozen=True, slots=True)
class _Entry:
    """A vCenter of the file, and what holds for all."""

    file: Sections | YamlSections
    common: GlobalSection
    name: str
    own: ServerSection

    def read(self) -> VCenter:
        """With what holds for all where it has nothing of its own."""
        names = [item.name for item in fields(ServerSection) if item.name != "server"]
        both = {name: getattr(self.own, name) or getattr(self.common, name) for name in names}
        found = replace(self.own, **both)
        if found.insecure_flag:
            problem = "is not supported: any server that answers would get the password"
            self.add("insecure_flag", problem, "give caFile, or thumbprint of the server")
        if why := found.ca_file and why_no_certificate(found.ca_file):
            remedy = "give the file of the authority's certificate, or of the server's own"
            self.add("ca_file", why, remedy)
        if len(found.ip_family) != len(set(found.ip_family)):
            self.add("ip_family", f"is {', '.join(found.ip_family)}", _FAMILY[1])
        return VCenter(
            name=self.name,
            server=self.server(),
            port=found.port or DEFAULT_PORT,
            ca_file=found.ca_file,
            thumbprint=found.thumbprint,
            datacenters=found.datacenters,
            families=found.ip_family or (IPV4,),
            **self.login(),
        )

    def add(self, field_name: str, problem: str, remedy: str) -> None:
        """Record a fault of a field, which may be one of all."""
        key, origins = self.file.spell(field_name), self.file.faults.origins
        own = f"{self.file.place(ServerSection, self.name)} {key}"
        common = f"{self.file.place(GlobalSection)} {key}"
        is_common = own not in origins and common in origins
        self.file.faults.add(common if is_common else own, problem, remedy)

    def server(self) -> str:
        """In INI the name of a section is the address of what has no other."""
        place = self.file.place(ServerSection, self.name)
        if self.own.server or f"{place} server" in self.file.faults.origins:
            return self.own.server
        if isinstance(self.file, YamlSections):
            self.add("server", "is missing", _SERVER[1])
            return ""
        try:
            return _server(self.name)
        except ValueError:
            self.file.faults.add(place, "is not an address", _SERVER[1])
            return ""

    def login(self) -> dict[str, str]:
        """A Secret or user and password, its own before those of all; or a directory of all."""
        own, common, faults = self.own, self.common, self.file.faults
        if any(bool(item.secret_name) != bool(item.secret_namespace) for item in (own, common)):
            remedy = "give secretName and secretNamespace"
            self.add("secret_name", "is one half of a Secret", remedy)
        chosen = own if own.secret_name or own.user or own.password else common
        login = {
            "user": own.user or common.user,
            "password": own.password or common.password,
            "secret_name": chosen.secret_name,
            "secret_namespace": chosen.secret_namespace,
        }
        directory = common.secrets_directory
        if directory and common.secret_name:
            self.add("secrets_directory", "stands beside a Secret", "remove one of them")
        if not directory and not login["secret_name"] and not login["user"]:
            directory = DEFAULT_SECRETS if Path(DEFAULT_SECRETS).is_dir() else ""
        has_login = login["user"] and login["password"]
        if not (has_login or login["secret_name"] or directory):
            remedy = "give user and password, secretName and secretNamespace, or secretsDirectory"
            faults.add(self.file.place(ServerSection, self.name), "has no credentials", remedy)
        return login | ({} if login["secret_name"] else {"secrets_directory": directory})
