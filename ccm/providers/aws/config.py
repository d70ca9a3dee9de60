"""The --cloud-config file as upstream has it; all its faults are reported at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import urlsplit

from ccm.durations import parse_duration
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.providers.aws.elb.annotations import SUPPORTED_ANNOTATIONS

GLOBAL = "global"
OVERRIDE = "serviceoverride"
OVERRIDE_KEYS = ("service", "region", "url", "signingregion", "signingmethod", "signingname")
SERVICES = {
    "ec2": ("ec2",),
    "elasticloadbalancing": ("elb", "elbv2"),
    "elastic load balancing": ("elb",),
    "elastic load balancing v2": ("elbv2",),
    "sts": ("sts",),
}
"""boto3's services by the names that a service has in an override."""
IP_FAMILIES = ("ipv4", "ipv6")
TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
PROBE_MODES = ("Shared", "ServiceNodePort")
PROBE_MODE = "ClusterServiceLoadBalancerHealthProbeMode"
PROBE_PORT = "ClusterServiceSharedLoadBalancerHealthProbePort"
PROBE_PATH = "ClusterServiceSharedLoadBalancerHealthProbePath"
TEXT_KEYS = {
    "Zone": "zone",
    "Region": "region",
    "VPC": "vpc",
    "SubnetID": "subnet_id",
    "RouteTableID": "route_table_id",
    "RoleARN": "role_arn",
    "SourceARN": "source_arn",
    "ElbSecurityGroup": "elb_security_group",
}
"""Keys whose value is taken as it is, and the fields of `AwsConfig` that they set."""
KEYS = (
    *TEXT_KEYS,
    "KubernetesClusterTag",
    "KubernetesClusterID",
    "DisableSecurityGroupIngress",
    "NodeIPFamilies",
    PROBE_MODE,
    PROBE_PORT,
    PROBE_PATH,
    "CallTimeout",  # ours
    "LoadBalancerType",  # ours
)
UNSUPPORTED_KEYS = {
    "nlbsecuritygroupmode": "use the annotation aws-load-balancer-security-groups",
    "supportedtopologyinstancetypepattern": "topology labels of the network are not written",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a service is reached instead of at its usual address."""

    region: str
    url: str
    signing_region: str
    signing_name: str = ""


@dataclass(frozen=True, slots=True)
class SharedProbe:
    """One health check for all nodes: kube-proxy's own, not that of each Service's port."""

    port: int = 10256
    path: str = "/healthz"


@dataclass(frozen=True, slots=True)
class AwsConfig:
    """What the file says; empty text where it says nothing."""

    region: str = ""
    zone: str = ""
    vpc: str = ""
    subnet_id: str = ""
    route_table_id: str = ""
    role_arn: str = ""
    source_arn: str = ""
    cluster_id: str = ""
    manages_node_ingress: bool = True
    elb_security_group: str = ""
    families: tuple[str, ...] = ("ipv4",)
    shared_probe: SharedProbe | None = None
    load_balancer_type: str = "classic"  # of Services that do not say theirs
    call_timeout: float = 15.0  # the slowest usual answers take a few seconds
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)  # by boto3's service


def read_config(content: bytes, path: str) -> AwsConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    where = path or "--cloud-config"
    try:
        entries = list(parse_entries(content.decode()))
    except (UnicodeDecodeError, ConfigSyntaxError) as wrong:
        detail = f": {wrong}" if isinstance(wrong, ConfigSyntaxError) else ""
        fault = ConfigurationFault(
            where, f"is not a cloud-config file{detail}", "start it with [Global]"
        )
        raise ConfigurationFaults([fault]) from wrong
    reader = _Reader(where, entries)
    config = reader.read()
    if reader.faults:
        raise ConfigurationFaults(reader.faults)
    return config


class _Reader:
    """Reads one key at a time and collects what is wrong; a faulty value reads as its default."""

    def __init__(self, where: str, entries: Sequence["ConfigEntry"]) -> None:
        self.faults: list[ConfigurationFault] = []
        self._where, self._entries = where, entries
        self._values: dict[str, list[str]] = {}

    def read(self) -> AwsConfig:
        self._read_global()
        return AwsConfig(
            cluster_id=self._cluster_id(),
            manages_node_ingress=not self._boolean("DisableSecurityGroupIngress"),
            families=self._families(),
            shared_probe=self._probe(),
            load_balancer_type=self._load_balancer_type(),
            call_timeout=self._timeout(),
            endpoints=self._endpoints(),
            **{name: self._last(key) for key, name in TEXT_KEYS.items()},
        )

    def _read_global(self) -> None:
        known = {key.lower() for key in KEYS}
        for entry in self._entries:
            if entry.section not in (GLOBAL, OVERRIDE) or (entry.section == GLOBAL and entry.name):
                title = entry.section + (f' "{entry.name}"' if entry.name else "")
                self._add(f"[{title}]", "is not a section of this file", "remove it")
            elif entry.section == GLOBAL and entry.key in UNSUPPORTED_KEYS:
                self._add_global(entry.key, "cannot be honoured", UNSUPPORTED_KEYS[entry.key])
            elif entry.section == GLOBAL and entry.key not in known:
                self._add_global(entry.key, "is not a key", f"use one of {', '.join(KEYS)}")
            elif entry.section == GLOBAL:
                value = "true" if entry.value is None else entry.value
                self._values.setdefault(entry.key, []).append(value)

    def _last(self, key: str, default: str = "") -> str:
        return self._values.get(key.lower(), [default])[-1]

    def _cluster_id(self) -> str:
        new, legacy = self._last("KubernetesClusterID"), self._last("KubernetesClusterTag")
        if new and legacy and new != legacy:
            problem = "and KubernetesClusterTag differ"
            self._add_global("KubernetesClusterID", problem, "keep one of them")
        return new or legacy

    def _boolean(self, key: str) -> bool:
        value = self._last(key, "false").lower()
        self._check(value in TRUE + FALSE, key, value, "give true or false")
        return value in TRUE

    def _families(self) -> tuple[str, ...]:
        values = self._values.get("nodeipfamilies", [])
        families = tuple(value.lower() for value in values)
        if not set(families) <= set(IP_FAMILIES) or len(set(families)) < len(families):
            remedy = "give ipv4, ipv6 or one line for each of them, the first choice first"
            self._add_global("NodeIPFamilies", f"is {', '.join(values)}", remedy)
            return ("ipv4",)
        return families or ("ipv4",)

    def _load_balancer_type(self) -> str:
        value = self._last("LoadBalancerType", "classic")
        types = " or ".join(SUPPORTED_ANNOTATIONS)
        self._check(value in SUPPORTED_ANNOTATIONS, "LoadBalancerType", value, f"give {types}")
        return value

    def _timeout(self) -> float:
        value = self._last("CallTimeout", "15s")
        try:
            seconds = parse_duration(value)
        except ValueError:
            seconds = 0.0
        self._check(seconds > 0, "CallTimeout", value, "give a duration as 15s")
        return seconds

    def _probe(self) -> SharedProbe | None:
        mode, port = self._last(PROBE_MODE) or "ServiceNodePort", self._last(PROBE_PORT, "10256")
        self._check(mode in PROBE_MODES, PROBE_MODE, mode, f"give {' or '.join(PROBE_MODES)}")
        is_port = port.isdecimal() and 1 <= int(port) <= 65535
        self._check(is_port, PROBE_PORT, port, "give a port")
        path = self._last(PROBE_PATH, "/healthz")
        return SharedProbe(int(port), path) if mode == "Shared" and is_port else None

    def _endpoints(self) -> dict[str, Endpoint]:
        overrides = (entry for entry in self._entries if entry.section == OVERRIDE)
        found: dict[str, Endpoint] = {}
        for name, entries in groupby(overrides, key=lambda entry: entry.name):
            title = f'[ServiceOverride "{name}"]'
            values = {entry.key: (entry.value or "").strip() for entry in entries}
            for service in self._overridden_services(title, values):
                if service in found:
                    self._add(title, f"is the second one of {service}", "keep one")
                keys = ("region", "url", "signingregion", "signingname")
                found[service] = Endpoint(*(values.get(key, "") for key in keys))
        return found

    def _overridden_services(self, title: str, values: Mapping[str, str]) -> tuple[str, ...]:
        """boto3's services that an override is for; none when it is faulty."""
        for key in sorted(values.keys() - set(OVERRIDE_KEYS)):
            self._add(f"{title} {key}", "is not a key", "remove it")
        for key in ("service", "region", "url", "signingregion"):
            if not values.get(key):
                self._add(f"{title} {key}", "is missing", "give it")
        service, url = values.get("service", ""), urlsplit(values.get("url", ""))
        if service and service.lower() not in SERVICES:
            self._add(f"{title} service", f"is {service!r}", f"use {', '.join(SERVICES)}")
        if values.get("signingmethod", "").lower() not in ("", "v4"):
            self._add(f"{title} signingmethod", "is not v4", "remove it")
        if values.get("url") and (url.scheme not in ("http", "https") or not url.hostname):
            self._add(f"{title} url", "is no URL", "give one as https://host")
        return SERVICES.get(service.lower(), ())

    def _check(self, is_valid: bool, key: str, value: str, remedy: str) -> None:
        if not is_valid:
            self._add_global(key, f"is {value!r}", remedy)

    def _add_global(self, key: str, problem: str, remedy: str) -> None:
        self._add(f"[Global] {key}", problem, remedy)

    def _add(self, key: str, problem: str, remedy: str) -> None:
        self.faults.append(ConfigurationFault(f"{self._where} {key}", problem, remedy))


# The file format is that of Go's gcfg: sections with names, repeated keys, quoted values.

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?")
_ESCAPES = {r"\"": '"', r"\\": "\\", r"\n": "\n", r"\t": "\t"}


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One `key = value`. Names of sections and keys are in lower case, `name` is as written."""

    section: str
    name: str  # of `[section "name"]`
    key: str
    value: str | None  # None for a key without `=`, which stands for a boolean that is true


class ConfigSyntaxError(Exception):
    """A line is not understood; its text is left out, since it may be a secret."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not understood")


def parse_entries(text: str) -> Iterator[ConfigEntry]:
    """All entries in their order; raises `ConfigSyntaxError`."""
    section, name = "", ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw).strip()
        if match := _SECTION.fullmatch(line):
            section, name = match[1].lower(), match[2] or ""
        elif (match := _KEY.fullmatch(line)) and section:
            value = None if match[2] is None else _unquote(match[2], number)
            yield ConfigEntry(section, name, match[1].lower(), value)
        elif line:
            raise ConfigSyntaxError(number)


def _without_comment(line: str) -> str:
    """The line up to a `;` or `#` that is not inside quotes."""
    is_quoted = is_escaped = False
    for at, char in enumerate(line):
        if char in ";#" and not is_quoted:
            return line[:at]
        if char == '"' and not is_escaped:
            is_quoted = not is_quoted
        is_escaped = char == "\\" and not is_escaped
    return line


def _unquote(value: str, line: int) -> str:
    if not value.startswith('"') and '"' not in value:
        return value
    if not re.fullmatch(r'"(?:[^"\\]|\\["\\nt])*"', value):
        raise ConfigSyntaxError(line)
    return re.sub(r'\\["\\nt]', lambda escape: _ESCAPES[escape.group()], value[1:-1])
