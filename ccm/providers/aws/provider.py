"""AWS as a `CloudProvider`, and what the instance that we run on is; outside of AWS nothing."""

import asyncio
import os
import re
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from ccm.cloud.interface import Instances, LoadBalancers, ProviderContext, Routes, Volumes
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.model.objects import mapping
from ccm.providers.aws.api_actions import QUOTAS
from ccm.providers.aws.client import AwsApi, sdk_region
from ccm.providers.aws.config import AwsConfig, AwsTimings, read_config
from ccm.providers.aws.elb.annotations import CLASSIC, NLB
from ccm.providers.aws.elb.classic import ClassicElbs
from ccm.providers.aws.elb.load_balancers import AwsLoadBalancers, ElbDependencies
from ccm.providers.aws.elb.nlb import Nlbs
from ccm.providers.aws.ids import PROVIDER_IDS
from ccm.providers.aws.instances import AwsInstances
from ccm.providers.aws.routes import AwsRoutes
from ccm.providers.aws.tags import (
    LEGACY_CLUSTER_TAG,
    ClusterTagging,
    Tags,
    cluster_ids,
    read_tags,
)
from ccm.providers.aws.volumes import AwsVolumes
from ccm.providers.aws.vpc import Vpc

_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
DEFAULT_ENDPOINT = "http://169.254.169.254"
REQUEST_TIMEOUT = 2.0  # seconds for each of a few small requests to the machine's own host
TOKEN_TTL = 300  # seconds
NO_ANSWER = (URLError, HTTPException, OSError)


@dataclass(frozen=True, slots=True)
class OwnInstance:
    """The instance that this process runs on; empty text where the service does not say."""

    instance_id: str = ""
    region: str = ""
    vpc: str = ""
    cluster_id: str = ""  # from the tags, where the instance lets them be read here


class AwsCloud:
    """EC2, EBS, VPC routes and Elastic Load Balancing of one region."""

    def __init__(self, timings: AwsTimings = AwsTimings()) -> None:
        self._timings = timings
        self.name = "aws"
        self.provider_ids = PROVIDER_IDS
        self.quotas = QUOTAS
        self.has_cluster_id = False
        self.instances: Instances | None = None
        self.load_balancers: LoadBalancers | None = None
        self.routes: Routes | None = None
        self.volumes: Volumes | None = None
        self._api: AwsApi | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; what it leaves out comes from our own instance."""
        config = read_config(context.config, context.config_path)
        await asyncio.to_thread(self._start, config, context)

    async def close(self) -> None:
        """Close the connections to AWS."""
        if self._api:
            self._api.close()

    def _start(self, config: AwsConfig, context: ProviderContext) -> None:
        has_region = config.region or config.zone or sdk_region()
        is_complete = has_region and config.vpc and config.cluster_id
        own = OwnInstance() if is_complete else read_own_instance()
        api = self._api = AwsApi(config, region_of(config, own), context.gate, context.caller)
        tagging = ClusterTagging(
            config.cluster_id or own.cluster_id,
            (lambda: own_tags(api, own)) if own.instance_id else None,
            is_optional=context.allow_untagged,
        )
        vpc = Vpc(api, config.vpc or own.vpc, self._timings.subnet_cache_ttl)
        self.has_cluster_id = tagging.has_cluster_id
        self.instances = AwsInstances(api, tagging, vpc.zones, config.families)
        self.volumes = AwsVolumes(api)
        self.routes = AwsRoutes(api, tagging, config.route_table_id)
        elb = ElbDependencies(api, vpc, tagging, config, self._timings)
        self.load_balancers = AwsLoadBalancers(
            {CLASSIC: ClassicElbs(elb), NLB: Nlbs(elb)}, tagging, config.load_balancer_type
        )


def region_of(config: AwsConfig, own: OwnInstance) -> str:
    """The region: configured, of the configured zone, of the environment, or our instance's."""
    zone = _REGION.match(config.zone)
    region = config.region or (zone.group() if zone else "") or sdk_region() or own.region
    if not region:
        fault = ConfigurationFault(
            "AWS region", "is not known", "set Region in the cloud-config or AWS_REGION"
        )
        raise ConfigurationFaults([fault])
    return region


def own_tags(api: AwsApi, own: OwnInstance) -> Tags:
    """The tags of the instance that we run on."""
    (record, *_) = api.describe_instances(InstanceIds=[own.instance_id]) or [{}]
    return read_tags(mapping(record).get("Tags"))


# The instance metadata service (IMDSv2).


def read_own_instance() -> OwnInstance:
    """This instance; empty outside of AWS and where `AWS_EC2_METADATA_DISABLED` says so."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return OwnInstance()
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL)}
    try:
        token = _request("api/token", "PUT", ttl)
    except NO_ANSWER:
        return OwnInstance()
    mac = _get("mac", token)
    return OwnInstance(
        instance_id=_get("instance-id", token),
        region=_get("placement/region", token),
        vpc=_get(f"network/interfaces/macs/{mac}/vpc-id", token) if mac else "",
        cluster_id=_cluster_id(token),
    )


def _cluster_id(token: str) -> str:
    found = cluster_ids(dict.fromkeys(_get("tags/instance", token).split(), ""))
    if found == {""}:  # the legacy tag alone, whose value is the ID
        return _get(f"tags/instance/{LEGACY_CLUSTER_TAG}", token)
    return found.pop() if len(found) == 1 else ""


def _get(path: str, token: str) -> str:
    try:
        return _request(f"meta-data/{path}", "GET", {"X-aws-ec2-metadata-token": token})
    except NO_ANSWER:
        return ""


def _request(path: str, method: str, headers: dict[str, str]) -> str:
    endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_ENDPOINT
    request = Request(f"{endpoint}/latest/{path}", method=method, headers=headers)
    never_by_proxy = build_opener(ProxyHandler({}))
    with never_by_proxy.open(request, timeout=REQUEST_TIMEOUT) as response:
        return str(response.read().decode()).strip()
