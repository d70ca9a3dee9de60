"""The --cloud-config file as upstream has it; all its faults are reported at once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ccm.cloud.config_file import (
    ConfigEntry,
    ConfigReader,
    boolean,
    number_within,
    one_of,
    parse_gcfg,
    positive_duration,
)
from ccm.providers.aws.elb.annotations import SUPPORTED_ANNOTATIONS

GLOBAL = "global"
OVERRIDE = "serviceoverride"
OVERRIDE_KEYS = ("service", "region", "url", "signingregion", "signingmethod", "signingname")
METADATA = "imds"
SERVICES: Mapping[str, Sequence[str]] = {
    "EC2": ("ec2",),
    "Elastic Load Balancing": ("elb",),
    "Elastic Load Balancing v2": ("elbv2",),
    "STS": ("sts",),
    "KMS": (),  # upstream asks it about keys of volumes; nothing does here
    "ec2imds": (METADATA,),
}
"""botocore's services by the names that upstream has for them, which are those of AWS's SDK."""
OLD_SERVICES: Mapping[str, Sequence[str]] = {
    **{name.lower(): services for name, services in SERVICES.items()},
    "elasticloadbalancing": ("elb", "elbv2"),
}
"""The same by the names of before, in any case of letters; where both are given, the new count."""
IP_FAMILIES = ("ipv4", "ipv6")
PROBE_MODES = ("Shared", "ServiceNodePort")
PROBE_MODE = "ClusterServiceLoadBalancerHealthProbeMode"
PROBE_PORT = "ClusterServiceSharedLoadBalancerHealthProbePort"
PROBE_PATH = "ClusterServiceSharedLoadBalancerHealthProbePath"
NLB_GROUP_MODE = "NLBSecurityGroupMode"
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
    NLB_GROUP_MODE,
    "NodeIPFamilies",
    "SupportedTopologyInstanceTypePattern",
    PROBE_MODE,
    PROBE_PORT,
    PROBE_PATH,
    "CallTimeout",  # ours
    "LoadBalancerType",  # ours
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a service is reached instead of at its usual address."""

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
    manages_nlb_groups: bool = False
    elb_security_group: str = ""
    families: tuple[str, ...] = ("ipv4",)
    shared_probe: SharedProbe | None = None
    topology_types: str = ""  # a regular expression
    load_balancer_type: str = "classic"  # of Services that do not say theirs
    call_timeout: float = 15.0  # the slowest usual answers take a few seconds
    endpoints: Mapping[tuple[str, str], Endpoint] = field(default_factory=dict)
    """By botocore's service and the region; that of the metadata service is for any region."""

    def endpoint(self, service: str, region: str = "") -> Endpoint | None:
        """Where a service of botocore's is reached in a region, if not at its usual address."""
        return self.endpoints.get((service, region))


def read_config(content: bytes, path: str) -> AwsConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    entries = parse_gcfg(content, path)
    settings = [entry for entry in entries if entry.section == GLOBAL and not entry.name]
    values = {entry.key: entry.value for entry in settings}  # the last of several counts
    reader = ConfigReader(path, "Global", KEYS, values)
    for entry in entries:
        if entry not in settings and entry.section != OVERRIDE:
            title = entry.section + (f' "{entry.name}"' if entry.name else "")
            reader.add_at(f"[{title}]", "is not a section of this file", "remove it")
    types = " or ".join(SUPPORTED_ANNOTATIONS)
    config = AwsConfig(
        cluster_id=_cluster_id(reader),
        manages_node_ingress=not reader.value(
            "DisableSecurityGroupIngress", boolean, False, "give true or false"
        ),
        manages_nlb_groups=reader.value(
            NLB_GROUP_MODE, one_of(("Managed", "")), "", "give Managed, or leave it out"
        )
        == "Managed",
        families=_families(reader, [e.value for e in settings if e.key == "nodeipfamilies"]),
        shared_probe=_probe(reader),
        topology_types=reader.value(
            "SupportedTopologyInstanceTypePattern", _pattern, "", "give a regular expression"
        ),
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


def _pattern(value: str) -> str:
    try:
        return re.compile(value).pattern
    except (re.error, OverflowError, RecursionError) as wrong:
        raise ValueError(value) from wrong


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


def _endpoints(
    reader: ConfigReader, entries: Sequence[ConfigEntry]
) -> dict[tuple[str, str], Endpoint]:
    sections: dict[str, dict[str, str]] = {}
    for entry in entries:
        sections.setdefault(entry.name, {})[entry.key] = entry.value.strip()
    seen: set[tuple[str, str]] = set()
    old: dict[tuple[str, str], Endpoint] = {}
    new: dict[tuple[str, str], Endpoint] = {}
    for name, values in sections.items():
        title = f'[ServiceOverride "{name}"]'
        _check_override(reader, title, values)
        service, region = values.get("service", ""), values.get("region", "")
        if service and (service, region) in seen:
            reader.add_at(title, f"is the second one of {service} in {region}", "keep one")
        seen.add((service, region))
        found, names = (new, SERVICES) if service in SERVICES else (old, OLD_SERVICES)
        endpoint = Endpoint(
            *(values.get(key, "") for key in ("url", "signingregion", "signingname"))
        )
        for one in names.get(service if found is new else service.lower(), ()):
            found[one, "" if one == METADATA else region] = endpoint
    return old | new


def _check_override(reader: ConfigReader, title: str, values: Mapping[str, str]) -> None:
    for key in sorted(values.keys() - set(OVERRIDE_KEYS)):
        reader.add_at(f"{title} {key}", "is not a key", "remove it")
    for key in ("service", "region", "url", "signingregion"):
        if not values.get(key):
            reader.add_at(f"{title} {key}", "is missing", "give it")
    service, url = values.get("service", ""), urlsplit(values.get("url", ""))
    if service and service.lower() not in OLD_SERVICES:
        known = ", ".join([*SERVICES, "elasticloadbalancing"])
        reader.add_at(f"{title} service", f"is {service!r}", f"use one of {known}")
    if values.get("signingmethod", "").lower() not in ("", "v4"):
        reader.add_at(f"{title} signingmethod", "is not v4", "remove it")
    if values.get("url") and (url.scheme not in ("http", "https") or not url.hostname):
        reader.add_at(f"{title} url", "is no URL", "give one as https://host")
