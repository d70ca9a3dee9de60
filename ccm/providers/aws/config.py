"""The --cloud-config file as upstream has it; all its faults are reported at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import urlsplit

from ccm.cloud.config_file import (
    ConfigEntry,
    ConfigReader,
    number_within,
    one_of,
    parse_gcfg,
    positive_duration,
)
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
class AwsTimings:
    """Seconds that no file changes."""

    subnet_cache_ttl: float = 60.0
    group_in_use_timeout: float = 600.0
    """After which a security group that cannot be deleted is an error (upstream's)."""


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
    entries = parse_gcfg(content, path)
    settings = [entry for entry in entries if entry.section == GLOBAL and not entry.name]
    values = {entry.key: entry.value for entry in settings}  # the last of several counts
    unsupported = {key: values.pop(key) for key in UNSUPPORTED_KEYS if key in values}
    reader = ConfigReader(path, "Global", KEYS, values)
    for key in unsupported:
        reader.add(key, "cannot be honoured", UNSUPPORTED_KEYS[key])
    for entry in entries:
        if entry not in settings and entry.section != OVERRIDE:
            title = entry.section + (f' "{entry.name}"' if entry.name else "")
            reader.add_at(f"[{title}]", "is not a section of this file", "remove it")
    types = " or ".join(SUPPORTED_ANNOTATIONS)
    config = AwsConfig(
        cluster_id=_cluster_id(reader),
        manages_node_ingress=not reader.value(
            "DisableSecurityGroupIngress", _boolean, False, "give true or false"
        ),
        families=_families(reader, [e.value for e in settings if e.key == "nodeipfamilies"]),
        shared_probe=_probe(reader),
        load_balancer_type=reader.value(
            "LoadBalancerType", one_of(SUPPORTED_ANNOTATIONS), "classic", f"give {types}"
        ),
        call_timeout=reader.value("CallTimeout", positive_duration, 15.0, "give a duration as 15s"),
        endpoints=_endpoints(reader, [entry for entry in entries if entry.section == OVERRIDE]),
        **{name: reader.text(key) for key, name in TEXT_KEYS.items()},
    )
    reader.check()
    return config


def _cluster_id(reader: ConfigReader) -> str:
    new, legacy = reader.text("KubernetesClusterID"), reader.text("KubernetesClusterTag")
    if new and legacy and new != legacy:
        reader.add("KubernetesClusterID", "and KubernetesClusterTag differ", "keep one of them")
    return new or legacy


def _boolean(value: str) -> bool:
    return one_of(TRUE + FALSE)(value.lower()) in TRUE


def _families(reader: ConfigReader, values: Sequence[str]) -> tuple[str, ...]:
    families = tuple(value.lower() for value in values)
    if not set(families) <= set(IP_FAMILIES) or len(set(families)) < len(families):
        remedy = "give ipv4, ipv6 or one line for each of them, the first choice first"
        reader.add("NodeIPFamilies", f"is {', '.join(values)}", remedy)
    return families or ("ipv4",)


def _probe(reader: ConfigReader) -> SharedProbe | None:
    modes = f"give {' or '.join(PROBE_MODES)}"
    mode = reader.value(PROBE_MODE, one_of((*PROBE_MODES, "")), "", modes)
    port = reader.value(PROBE_PORT, number_within(1, 65535), 10256, "give a port")
    return SharedProbe(port, reader.text(PROBE_PATH, "/healthz")) if mode == "Shared" else None


def _endpoints(reader: ConfigReader, overrides: Sequence[ConfigEntry]) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for name, entries in groupby(overrides, key=lambda entry: entry.name):
        title = f'[ServiceOverride "{name}"]'
        values = {entry.key: entry.value.strip() for entry in entries}
        for service in _overridden_services(reader, title, values):
            if service in found:
                reader.add_at(title, f"is the second one of {service}", "keep one")
            keys = ("region", "url", "signingregion", "signingname")
            found[service] = Endpoint(*(values.get(key, "") for key in keys))
    return found


def _overridden_services(
    reader: ConfigReader, title: str, values: Mapping[str, str]
) -> tuple[str, ...]:
    """boto3's services that an override is for; none when it is faulty."""
    for key in sorted(values.keys() - set(OVERRIDE_KEYS)):
        reader.add_at(f"{title} {key}", "is not a key", "remove it")
    for key in ("service", "region", "url", "signingregion"):
        if not values.get(key):
            reader.add_at(f"{title} {key}", "is missing", "give it")
    service, url = values.get("service", ""), urlsplit(values.get("url", ""))
    if service and service.lower() not in SERVICES:
        reader.add_at(f"{title} service", f"is {service!r}", f"use {', '.join(SERVICES)}")
    if values.get("signingmethod", "").lower() not in ("", "v4"):
        reader.add_at(f"{title} signingmethod", "is not v4", "remove it")
    if values.get("url") and (url.scheme not in ("http", "https") or not url.hostname):
        reader.add_at(f"{title} url", "is no URL", "give one as https://host")
    return SERVICES.get(service.lower(), ())
