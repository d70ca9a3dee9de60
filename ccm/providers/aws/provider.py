"""AWS as a `CloudProvider`."""

import asyncio
import re

from ccm.cloud.interface import Instances, LoadBalancers, ProviderContext, Routes, Volumes
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.model.objects import mapping
from ccm.providers.aws.api_actions import QUOTAS
from ccm.providers.aws.client import AwsApi, sdk_region
from ccm.providers.aws.config import AwsConfig, read_config
from ccm.providers.aws.elb.annotations import CLASSIC, NLB
from ccm.providers.aws.elb.classic import ClassicElbs
from ccm.providers.aws.elb.load_balancers import AwsLoadBalancers, ElbDependencies
from ccm.providers.aws.elb.nlb import Nlbs
from ccm.providers.aws.ids import SCHEME
from ccm.providers.aws.imds import InstanceMetadata, OwnInstance
from ccm.providers.aws.instances import AwsInstances
from ccm.providers.aws.routes import AwsRoutes
from ccm.providers.aws.tags import ClusterTagging, Tags, read_tags
from ccm.providers.aws.volumes import AwsVolumes
from ccm.providers.aws.vpc import Vpc

_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")


class AwsCloud:
    """EC2, EBS, VPC routes and Elastic Load Balancing of one region."""

    def __init__(self) -> None:
        self.name = "aws"
        self.scheme = SCHEME
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
        own = InstanceMetadata().read() if needs_metadata(config) else OwnInstance()
        api = self._api = AwsApi(config, region_of(config, own), context.gate, context.caller)
        tagging = ClusterTagging(
            config.cluster_id or own.cluster_id,
            (lambda: own_tags(api, own)) if own.instance_id else None,
            is_optional=context.allow_untagged,
        )
        vpc = Vpc(api, config.vpc or own.vpc)
        self.has_cluster_id = tagging.has_cluster_id
        self.instances = AwsInstances(api, tagging, vpc.zones, config.families)
        self.volumes = AwsVolumes(api)
        self.routes = AwsRoutes(api, tagging, config.route_table_id)
        elb = ElbDependencies(api, vpc, tagging, config)
        self.load_balancers = AwsLoadBalancers(
            {CLASSIC: ClassicElbs(elb), NLB: Nlbs(elb)}, tagging, config.load_balancer_type
        )


def needs_metadata(config: AwsConfig) -> bool:
    """Whether the configuration leaves something to the instance that we run on."""
    return not ((config.region or config.zone or sdk_region()) and config.vpc and config.cluster_id)


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
