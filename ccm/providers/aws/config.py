"""The --cloud-config file as upstream has it; all its faults are reported at once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from ccm.cloud.config_file import choice, one_of, url, whole_number
from ccm.cloud.sections import Faults, Sections, place_of, setting
from ccm.providers.aws.elb.annotations import SUPPORTED_ANNOTATIONS

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


def _pattern(value: str) -> str:
    try:
        return re.compile(value).pattern
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(value) from error


def _host_url(value: str) -> str:
    return url(value.strip(), ("http", "https"), None)


_PATTERN = _pattern, "give a regular expression"
_URL = _host_url, "give one as https://host"
_TRIMMED = str.strip, ""
_MANAGED = one_of(("Managed",)), "give Managed, or leave it out"


@dataclass(frozen=True, slots=True)
class CommonKeys:
    """Keys of `[Global]` that hold as they are; empty text where the file says nothing."""

    region: str = setting("", name="Region")
    zone: str = setting("", name="Zone")
    vpc: str = setting("", name="VPC")
    subnet_id: str = setting("", name="SubnetID")
    route_table_id: str = setting("", name="RouteTableID")
    role_arn: str = setting("", name="RoleARN")
    source_arn: str = setting("", name="SourceARN")
    elb_security_group: str = setting("", name="ElbSecurityGroup")
    topology_types: str = setting("", _PATTERN, name="SupportedTopologyInstanceTypePattern")
    load_balancer_type: str = setting(
        "classic", choice(*SUPPORTED_ANNOTATIONS), name="LoadBalancerType"
    )
    """Of Services that do not say theirs; ours."""
    call_timeout: float = setting(15.0, name="CallTimeout")
    """Ours; the slowest usual answers take a few seconds."""


@dataclass(frozen=True, slots=True)
class GlobalSection(CommonKeys):
    """`[Global]`: all of upstream's keys."""

    cluster_tag: str = setting("", name="KubernetesClusterTag")
    cluster_id: str = setting("", name="KubernetesClusterID")
    leaves_node_ingress: bool = setting(False, name="DisableSecurityGroupIngress")
    nlb_groups: str = setting("", _MANAGED, name="NLBSecurityGroupMode")
    families: tuple[str, ...] = setting((), name="NodeIPFamilies")
    probe_mode: str = setting(
        "",
        choice("Shared", "ServiceNodePort"),
        name="ClusterServiceLoadBalancerHealthProbeMode",
    )
    probe_port: int = setting(
        10256,
        whole_number(1, 65535),
        name="ClusterServiceSharedLoadBalancerHealthProbePort",
    )
    probe_path: str = setting("/healthz", name="ClusterServiceSharedLoadBalancerHealthProbePath")


@dataclass(frozen=True, slots=True)
class Override:
    """`[ServiceOverride "name"]`."""

    service: str = setting("", _TRIMMED, name="Service")
    region: str = setting("", _TRIMMED, name="Region")
    url: str = setting("", _URL, name="URL")
    signing_region: str = setting("", _TRIMMED, name="SigningRegion")
    signing_method: str = setting("", _TRIMMED, name="SigningMethod")
    signing_name: str = setting("", _TRIMMED, name="SigningName")


SECTIONS: Mapping[str, type] = {"Global": GlobalSection, "ServiceOverride": Override}


@dataclass(frozen=True, slots=True)
class AwsConfig(CommonKeys):
    """What the file says."""

    cluster_id: str = ""
    manages_node_ingress: bool = True
    manages_nlb_groups: bool = False
    families: tuple[str, ...] = ("ipv4",)
    shared_probe: SharedProbe | None = None
    endpoints: Mapping[tuple[str, str], Endpoint] = field(default_factory=dict)
    """By botocore's service and the region; that of the metadata service is for any region."""

    def endpoint(self, service: str, region: str = "") -> Endpoint | None:
        """Where a service of botocore's is reached in a region, if not at its usual address."""
        return self.endpoints.get((service, region))


def read_config(content: bytes, path: str) -> AwsConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    sections = Sections(content, path, SECTIONS, named=("ServiceOverride",))
    known, faults = sections.read(GlobalSection), sections.faults
    if known.cluster_id and known.cluster_tag and known.cluster_id != known.cluster_tag:
        problem = "and KubernetesClusterTag differ"
        faults.add("[Global] KubernetesClusterID", problem, "keep one of them")
    config = AwsConfig(
        **{item.name: getattr(known, item.name) for item in fields(CommonKeys)},
        cluster_id=known.cluster_id or known.cluster_tag,
        manages_node_ingress=not known.leaves_node_ingress,
        manages_nlb_groups=known.nlb_groups == "Managed",
        families=_families(known.families, faults),
        shared_probe=(
            SharedProbe(known.probe_port, known.probe_path)
            if known.probe_mode == "Shared"
            else None
        ),
        endpoints=_endpoints(sections.read_named(Override), faults),
    )
    faults.check()
    return config


def _families(values: Sequence[str], faults: Faults) -> tuple[str, ...]:
    families = tuple(value.lower() for value in values)
    if not set(families) <= set(IP_FAMILIES) or len(set(families)) < len(families):
        remedy = "give ipv4, ipv6 or one line for each of them, the first choice first"
        faults.add("[Global] NodeIPFamilies", f"is {', '.join(values)}", remedy)
    return families or ("ipv4",)


def _endpoints(
    overrides: Mapping[str, Override], faults: Faults
) -> dict[tuple[str, str], Endpoint]:
    seen: set[tuple[str, str]] = set()
    old: dict[tuple[str, str], Endpoint] = {}
    new: dict[tuple[str, str], Endpoint] = {}
    for name, override in overrides.items():
        place, service, region = (
            place_of("ServiceOverride", name),
            override.service,
            override.region,
        )
        _check_override(override, place, faults)
        if service and (service, region) in seen:
            faults.add(place, f"is the second one of {service} in {region}", "keep one")
        seen.add((service, region))
        found, names = (new, SERVICES) if service in SERVICES else (old, OLD_SERVICES)
        endpoint = Endpoint(override.url, override.signing_region, override.signing_name)
        for item in names.get(service if found is new else service.lower(), ()):
            found[item, "" if item == METADATA else region] = endpoint
    return old | new


def _check_override(override: Override, place: str, faults: Faults) -> None:
    for key in ("Service", "Region", "URL", "SigningRegion"):
        if f"{place} {key}" not in faults.origins:
            faults.add(f"{place} {key}", "is missing", "give it")
    if override.service and override.service.lower() not in OLD_SERVICES:
        known = ", ".join([*SERVICES, "elasticloadbalancing"])
        faults.add(f"{place} Service", f"is {override.service!r}", f"use one of {known}")
    if override.signing_method.lower() not in ("", "v4"):
        faults.add(f"{place} SigningMethod", "is not v4", "remove it")
