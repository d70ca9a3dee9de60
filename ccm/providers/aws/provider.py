"""AWS as a `CloudProvider`, and what the instance that we run on is; outside of AWS nothing."""

import asyncio
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from urllib.error import URLError
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from ccm.cloud.credentials import is_shown
from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.cloud.sections import did_you_mean
from ccm.errors import CloudError, ConfigurationFault, ConfigurationFaults
from ccm.providers.aws.api_actions import QUOTAS
from ccm.providers.aws.client import AwsApi, sdk_region, sdk_regions
from ccm.providers.aws.config import METADATA, AwsConfig, AwsTimings, read_config
from ccm.providers.aws.elb.annotations import CLASSIC, NLB
from ccm.providers.aws.elb.classic import ClassicElbs
from ccm.providers.aws.elb.load_balancers import AwsLoadBalancers, ElbDependencies
from ccm.providers.aws.elb.nlb import Nlbs
from ccm.providers.aws.ids import PROVIDER_IDS
from ccm.providers.aws.instance_tags import InstanceTags
from ccm.providers.aws.instances import AwsInstances
from ccm.providers.aws.routes import AwsRoutes
from ccm.providers.aws.tags import (
    LEGACY_CLUSTER_TAG,
    ClusterTagging,
    Tags,
    cluster_ids,
    read_tags,
)
from ccm.providers.aws.topology import NetworkTopology
from ccm.providers.aws.volumes import AwsVolumes
from ccm.providers.aws.vpc import Vpc
from ccm.providers.aws.wire import SMALL_ANSWER, UNREADABLE, TimedResponse, time_limit
from ccm.redaction import register_secrets

_REGION_NAME = re.compile(
    r"[a-z]{2,4}(-(gov|iso[a-z]?|[a-z]{2}))?-(central|(north|south)?(east|west)|north|south)-\d+"
)
"""New regions are as those before, in all of AWS's partitions."""
_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
_VPC = re.compile(r"vpc-[0-9a-z]{1,32}")
DEFAULT_ENDPOINT = "http://169.254.169.254"
REQUEST_TIMEOUT = 2.0  # seconds for each of a few small requests to the machine's own host
METADATA_TIMEOUT = 10.0  # seconds for all of them
TOKEN_TTL = 300  # seconds
MAX_REGION = 64  # characters of it in a message
NO_ANSWER = (URLError, HTTPException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class OwnInstance:
    """The instance that this process runs on; empty text where the service does not say."""

    instance_id: str = ""
    region: str = ""
    vpc: str = ""
    cluster_id: str = ""  # from the tags, where the instance lets them be read here


class AwsCloud(CloudProvider):
    """EC2, EBS, VPC routes and Elastic Load Balancing of one region."""

    name = "aws"
    provider_ids = PROVIDER_IDS
    quotas = QUOTAS
    has_cluster_id = False

    def __init__(self, timings: AwsTimings = AwsTimings()) -> None:
        self._timings = timings
        self.instance_tags: InstanceTags
        self._api: AwsApi | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration; what it leaves out comes from our own instance."""
        config = read_config(context.config, context.config_path)
        try:
            await asyncio.to_thread(self._start, config, context)
        except UNREADABLE as error:  # what the SDK reads of files, processes and services
            why = f"no credentials, or no region, can be read: {type(error).__name__}: {error}"
            raise CloudError(why) from error

    async def close(self) -> None:
        """Close the connections to AWS."""
        if self._api:
            self._api.close()

    def _start(self, config: AwsConfig, context: ProviderContext) -> None:
        has_region = bool(config.region or config.zone or sdk_region())
        is_complete = has_region and config.vpc and config.cluster_id
        metadata = config.endpoint(METADATA)
        url = metadata.url if metadata else ""
        own = OwnInstance() if is_complete else find_own_instance(url)
        find_vpc: Callable[[], str] | None = None
        if not (is_complete or is_metadata_disabled()):
            if not own.instance_id:
                check_without_metadata(config, has_region, context.allow_untagged)
            find_vpc = lambda: find_own_instance(url).vpc  # noqa: E731 - it may answer by then
        api = self._api = AwsApi(config, region_of(config, own), context.gate, context.caller)
        tagging = ClusterTagging(
            config.cluster_id or own.cluster_id,
            None if config.cluster_id or not own.instance_id else lambda: own_tags(api, own),
            is_optional=context.allow_untagged,
        )
        vpc = Vpc(api, config.vpc or own.vpc, self._timings.subnet_cache_ttl, find_vpc)
        self.has_cluster_id = tagging.has_cluster_id
        topology = NetworkTopology(api, config.topology_types)
        self.instances = AwsInstances(api, tagging, vpc.zones, topology, config.families)
        self.instance_tags = InstanceTags(api, tagging)
        self.volumes = AwsVolumes(api)
        self.routes = AwsRoutes(api, tagging, config.route_table_id)
        elb = ElbDependencies(api, vpc, tagging, config, self._timings, context.cluster_name)
        self.load_balancers = AwsLoadBalancers(
            {CLASSIC: ClassicElbs(elb), NLB: Nlbs(elb)}, elb, config.load_balancer_type
        )


def check_without_metadata(config: AwsConfig, has_region: bool, allow_untagged: bool) -> None:
    """Raise `CloudError` for what only a metadata service can say that does not answer.

    That is no fault of the configuration: it may answer in a moment, as after the machine's start.
    """
    given = {"Region": has_region, "KubernetesClusterID": config.cluster_id or allow_untagged}
    if lacking := [name for name, value in given.items() if not value]:
        raise CloudError(
            "this machine's metadata service does not answer, which is to say where we are: "
            f"set {' and '.join(lacking)} in the cloud-config where there is none"
        )


def region_of(config: AwsConfig, own: OwnInstance) -> str:
    """The region: configured, of the configured zone, of the environment, or our instance's."""
    zone = _REGION.match(config.zone)
    configured = config.region or (zone.group() if zone else "") or sdk_region()
    region = configured or own.region
    if not configured and own.instance_id and not _is_region(config, region):
        raise CloudError(  # it may answer otherwise in a moment
            f"this machine's metadata service reports no region, but {region[:MAX_REGION]!r}: set "
            "Region in the cloud-config"
        )
    if not region:
        fault = ConfigurationFault(
            "AWS region", "is not known", "set Region in the cloud-config or AWS_REGION"
        )
        raise ConfigurationFaults([fault])
    if not _is_region(config, region):
        hint = did_you_mean(region, sdk_regions())
        remedy = f"{hint} Set Region in the cloud-config or AWS_REGION".strip()
        fault = ConfigurationFault("AWS region", f"there is no such region: {region!r}", remedy)
        raise ConfigurationFaults([fault])
    return region


def _is_region(config: AwsConfig, region: str) -> bool:
    return bool(_REGION_NAME.fullmatch(region)) or region in {of for _, of in config.endpoints}


def own_tags(api: AwsApi, own: OwnInstance) -> Tags:
    """The tags of the instance that we run on."""
    return read_tags(api.describe_instance(own.instance_id).get("Tags"))


# The instance metadata service (IMDSv2).


def find_own_instance(endpoint: str = "") -> OwnInstance:
    """This instance, by two reads that agree: it counts for as long as this process runs."""
    own = read_own_instance(endpoint)
    if own.instance_id and own != read_own_instance(endpoint):
        raise CloudError("two answers of this machine's metadata service differ: asked again")
    return own


def read_own_instance(endpoint: str = "", total_timeout: float = METADATA_TIMEOUT) -> OwnInstance:
    """This instance; empty outside of AWS and where `AWS_EC2_METADATA_DISABLED` says so.

    What does not answer in time is left out, however slowly it does.
    """
    if is_metadata_disabled():
        return OwnInstance()
    url = endpoint or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_ENDPOINT
    service = _MetadataService(url.rstrip("/"))
    with time_limit(total_timeout, SMALL_ANSWER):
        try:
            service.log_in()
        except NO_ANSWER:
            return OwnInstance()
        mac = service.get("mac")
        vpc = service.get(f"network/interfaces/macs/{mac}/vpc-id") if mac else ""
        return OwnInstance(
            instance_id=service.get("instance-id"),
            region=service.get("placement/region"),
            vpc=vpc if _VPC.fullmatch(vpc) else "",
            cluster_id=_cluster_id(service),
        )


def is_metadata_disabled() -> bool:
    """Whether the environment says that there is none."""
    return os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"


def _cluster_id(service: "_MetadataService") -> str:
    found = cluster_ids(dict.fromkeys(service.get("tags/instance").split(), ""))
    if found == {""}:  # the legacy tag alone, whose value is the ID
        return service.get(f"tags/instance/{LEGACY_CLUSTER_TAG}")
    return found.pop() if len(found) == 1 else ""


class _MetadataService:
    def __init__(self, url: str) -> None:
        self._url, self._token = url, ""

    def log_in(self) -> None:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL)}
        self._token = self._request("api/token", "PUT", ttl)
        if is_shown(self._token):
            register_secrets(self._token)

    def get(self, path: str) -> str:
        try:
            header = {"X-aws-ec2-metadata-token": self._token}
            return self._request(f"meta-data/{path}", "GET", header)
        except NO_ANSWER:
            return ""

    def _request(self, path: str, method: str, headers: dict[str, str]) -> str:
        request = Request(f"{self._url}/latest/{path}", method=method, headers=headers)
        directly = build_opener(ProxyHandler({}), _TimedHandler(), _NoRedirects())
        with directly.open(request, timeout=REQUEST_TIMEOUT) as response:
            return str(response.read().decode()).strip()


class _TimedConnection(HTTPConnection):
    response_class = TimedResponse


class _TimedHandler(HTTPHandler):
    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_TimedConnection, req)


class _NoRedirects(HTTPRedirectHandler):
    """The token goes to the one host that gave it."""

    def redirect_request(self, *_: object) -> None:
        return
