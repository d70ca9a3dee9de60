"""The --cloud-config file as upstream has it; everything wrong in it is told at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import urlsplit

from ccm.durations import parse_duration
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.providers.aws.annotations import KNOWN
from ccm.providers.aws.ini import Entry, NotUnderstood, read_entries

GLOBAL = "global"
OVERRIDE = "serviceoverride"
SERVICES = {
    "ec2": ("ec2",),
    "elasticloadbalancing": ("elb", "elbv2"),
    "elastic load balancing": ("elb",),
    "elastic load balancing v2": ("elbv2",),
    "sts": ("sts",),
}
"""boto3's clients by the names that a service has in an override."""
FAMILIES = ("ipv4", "ipv6")
TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
PROBES = ("Shared", "ServiceNodePort")


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
    may_open_nodes: bool = True
    elb_security_group: str = ""
    families: tuple[str, ...] = ("ipv4",)
    shared_probe: SharedProbe | None = None
    balancer_type: str = "classic"  # of Services that do not say theirs
    call_timeout: float = 15.0  # the slowest usual answers take a few seconds
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)  # by boto3's client


def read_config(content: bytes, path: str) -> AwsConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    where = path or "--cloud-config"
    try:
        entries = read_entries(content.decode())
    except (UnicodeDecodeError, NotUnderstood) as wrong:
        detail = f": {wrong}" if isinstance(wrong, NotUnderstood) else ""
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

    _KEYS = {
        key.lower(): key
        for key in (
            "Zone",
            "Region",
            "VPC",
            "SubnetID",
            "RouteTableID",
            "RoleARN",
            "SourceARN",
            "KubernetesClusterTag",
            "KubernetesClusterID",
            "DisableSecurityGroupIngress",
            "ElbSecurityGroup",
            "NodeIPFamilies",
            "ClusterServiceLoadBalancerHealthProbeMode",
            "ClusterServiceSharedLoadBalancerHealthProbePort",
            "ClusterServiceSharedLoadBalancerHealthProbePath",
            "CallTimeout",  # ours
            "LoadBalancerType",  # ours
        )
    }
    _UNSUPPORTED = {
        "nlbsecuritygroupmode": "use the annotation aws-load-balancer-security-groups",
        "supportedtopologyinstancetypepattern": "topology labels of the network are not written",
    }
    _OVERRIDE_KEYS = ("service", "region", "url", "signingregion", "signingmethod", "signingname")

    def __init__(self, where: str, entries: Sequence[Entry]) -> None:
        self.faults: list[ConfigurationFault] = []
        self._where = where
        self._entries = entries

    def read(self) -> AwsConfig:
        values = self._global_values()
        last = {key: found[-1] for key, found in values.items()}
        return AwsConfig(
            region=last.get("region", ""),
            zone=last.get("zone", ""),
            vpc=last.get("vpc", ""),
            subnet_id=last.get("subnetid", ""),
            route_table_id=last.get("routetableid", ""),
            role_arn=last.get("rolearn", ""),
            source_arn=last.get("sourcearn", ""),
            cluster_id=self._cluster_id(last),
            may_open_nodes=not self._boolean("disablesecuritygroupingress", last),
            elb_security_group=last.get("elbsecuritygroup", ""),
            families=self._families(values.get("nodeipfamilies", [])),
            shared_probe=self._probe(last),
            balancer_type=self._balancer_type(last.get("loadbalancertype", "classic")),
            call_timeout=self._timeout(last.get("calltimeout", "15s")),
            endpoints=self._endpoints(),
        )

    def _global_values(self) -> dict[str, list[str]]:
        values: dict[str, list[str]] = {}
        for entry in self._entries:
            if entry.section not in (GLOBAL, OVERRIDE) or (entry.section == GLOBAL and entry.name):
                title = entry.section + (f' "{entry.name}"' if entry.name else "")
                self._add(f"[{title}]", "is not a section of this file", "remove it")
            elif entry.section == GLOBAL and entry.key in self._UNSUPPORTED:
                remedy = self._UNSUPPORTED[entry.key]
                self._add(f"[Global] {entry.key}", "cannot be honoured", remedy)
            elif entry.section == GLOBAL and entry.key not in self._KEYS:
                known = ", ".join(self._KEYS.values())
                self._add(f"[Global] {entry.key}", "is not a key", f"use one of {known}")
            elif entry.section == GLOBAL:
                value = "true" if entry.value is None else entry.value
                values.setdefault(entry.key, []).append(value)
        return values

    def _cluster_id(self, last: Mapping[str, str]) -> str:
        new, legacy = last.get("kubernetesclusterid", ""), last.get("kubernetesclustertag", "")
        if new and legacy and new != legacy:
            self._add(
                "[Global] KubernetesClusterID",
                "and KubernetesClusterTag differ",
                "keep one of them",
            )
        return new or legacy

    def _boolean(self, key: str, last: Mapping[str, str]) -> bool:
        value = last.get(key, "false").lower()
        if value not in TRUE + FALSE:
            self._add(f"[Global] {self._KEYS[key]}", f"is {value!r}", "give true or false")
        return value in TRUE

    def _families(self, values: Sequence[str]) -> tuple[str, ...]:
        families = tuple(value.lower() for value in values)
        if not set(families) <= set(FAMILIES) or len(set(families)) < len(families):
            shown = ", ".join(values)
            remedy = "give ipv4, ipv6 or one line for each of them, the first choice first"
            self._add("[Global] NodeIPFamilies", f"is {shown}", remedy)
            return ("ipv4",)
        return families or ("ipv4",)

    def _balancer_type(self, value: str) -> str:
        if value not in KNOWN:
            remedy = f"give {' or '.join(KNOWN)}"
            self._add("[Global] LoadBalancerType", f"is {value!r}", remedy)
        return value

    def _timeout(self, value: str) -> float:
        try:
            seconds = parse_duration(value)
        except ValueError:
            seconds = 0.0
        if seconds <= 0:
            self._add("[Global] CallTimeout", f"is {value!r}", "give a duration as 15s")
        return seconds

    def _probe(self, last: Mapping[str, str]) -> SharedProbe | None:
        prefix = "clusterservicesharedloadbalancerhealthprobe"
        mode = last.get("clusterserviceloadbalancerhealthprobemode") or "ServiceNodePort"
        port = last.get(f"{prefix}port", "10256")
        if mode not in PROBES:
            name = self._KEYS["clusterserviceloadbalancerhealthprobemode"]
            self._add(f"[Global] {name}", f"is {mode!r}", f"give {' or '.join(PROBES)}")
        if not port.isdecimal() or not 1 <= int(port) <= 65535:
            self._add(f"[Global] {self._KEYS[f'{prefix}port']}", f"is {port!r}", "give a port")
            return None
        path = last.get(f"{prefix}path", "/healthz")
        return SharedProbe(int(port), path) if mode == "Shared" else None

    def _endpoints(self) -> dict[str, Endpoint]:
        overrides = (entry for entry in self._entries if entry.section == OVERRIDE)
        found: dict[str, Endpoint] = {}
        for name, entries in groupby(overrides, key=lambda entry: entry.name):
            title = f'[ServiceOverride "{name}"]'
            values = {entry.key: (entry.value or "").strip() for entry in entries}
            clients = self._overridden(title, values)
            for client in clients:
                if client in found:
                    self._add(title, f"is the second one of {client}", "keep one")
                found[client] = Endpoint(
                    values.get("region", ""),
                    values.get("url", ""),
                    values.get("signingregion", ""),
                    values.get("signingname", ""),
                )
        return found

    def _overridden(self, title: str, values: Mapping[str, str]) -> tuple[str, ...]:
        """The clients that an override is for; none when it is faulty."""
        for key in sorted(values.keys() - set(self._OVERRIDE_KEYS)):
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

    def _add(self, key: str, problem: str, remedy: str) -> None:
        self.faults.append(ConfigurationFault(f"{self._where} {key}", problem, remedy))
