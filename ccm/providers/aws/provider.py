"""AWS as a `CloudProvider`."""

import asyncio
import re

from botocore.session import get_session

from ccm.cloud.interface import Instances, LoadBalancers, ProviderContext, Routes, Volumes
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.model.objects import mapping
from ccm.providers.aws.balancers.balancers import AwsLoadBalancers
from ccm.providers.aws.balancers.kind import Surroundings
from ccm.providers.aws.calls import QUOTAS
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.config import AwsConfig, read_config
from ccm.providers.aws.ids import SCHEME
from ccm.providers.aws.instances import AwsInstances, describe_instances
from ccm.providers.aws.metadata import Machine, Metadata
from ccm.providers.aws.network import Network
from ccm.providers.aws.routes import AwsRoutes
from ccm.providers.aws.tags import Ownership, Tags, read_tags
from ccm.providers.aws.volumes import AwsVolumes

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
        """Read the configuration, and where it leaves things out, ask our own machine."""
        config = read_config(context.config, context.config_path)
        await asyncio.to_thread(self._start, config, context)

    async def close(self) -> None:
        if self._api:
            self._api.close()

    def _start(self, config: AwsConfig, context: ProviderContext) -> None:
        machine = Metadata().machine() if needs_machine(config) else Machine()
        region = region_of(config, machine)
        api = self._api = AwsApi(config, region, context.gate, context.caller)
        ownership = Ownership(
            config.cluster_id or machine.cluster_id,
            (lambda: own_tags(api, machine)) if machine.instance_id else None,
            is_optional=context.allow_untagged,
        )
        self.has_cluster_id = ownership.is_there
        self.instances = AwsInstances(api, ownership, config.families)
        self.volumes = AwsVolumes(api)
        self.routes = AwsRoutes(api, ownership, config.route_table_id)
        network = Network(api, config.vpc or machine.vpc)
        self.load_balancers = AwsLoadBalancers(Surroundings(api, network, ownership, config))


def needs_machine(config: AwsConfig) -> bool:
    """Whether the configuration leaves something to the machine that we run on."""
    has_region = config.region or config.zone or get_session().get_config_variable("region")
    return not (has_region and config.vpc and config.cluster_id)


def region_of(config: AwsConfig, machine: Machine) -> str:
    """The region: configured, of the configured zone, of the environment, or the machine's."""
    zone = _REGION.match(config.zone)
    configured = config.region or (zone.group() if zone else "")
    region = configured or get_session().get_config_variable("region") or machine.region
    if not region:
        fault = ConfigurationFault(
            "AWS region", "is not known", "set Region in the cloud-config or AWS_REGION"
        )
        raise ConfigurationFaults([fault])
    return str(region)


def own_tags(api: AwsApi, machine: Machine) -> Tags:
    """The tags of the instance that we run on."""
    (record, *_) = describe_instances(api, InstanceIds=[machine.instance_id]) or [{}]
    return read_tags(mapping(record).get("Tags"))
