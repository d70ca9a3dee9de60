"""The way to AWS by its SDK: one call at a time through the gate, errors by what to do.

Calls pass the gate and are never retried in here: a retry inside of the SDK is one that the budget
does not see.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError, NoCredentialsError, PartialCredentialsError
from botocore.loaders import Loader
from botocore.session import Session, get_session

from ccm.cloud.interface import Gate
from ccm.cloud.lookup import MAX_PAGES, MAX_VALUES, batches
from ccm.cloud.shared_read import SharedBlockingReads
from ccm.errors import CloudError, Denied, NoRoom, Refused, RetryAfter, Throttled, Unauthenticated
from ccm.model.objects import Json, mapping, objects, objects_with, text
from ccm.providers.aws.api_actions import API_ACTIONS
from ccm.providers.aws.config import AwsConfig
from ccm.providers.aws.credentials import AwsCredentials, find_credentials, use_credentials
from ccm.providers.aws.ids import INSTANCE_ID
from ccm.providers.aws.tags import Tags, read_tags
from ccm.providers.aws.wire import (
    ELEMENTS,
    UNREADABLE,
    check_body,
    check_members,
    limit_time,
    new_session,
    time_limit,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

CONNECT_TIMEOUT = 3.0
MAX_CONNECTIONS = 32  # more than calls of one worker are under way at the quotas of AWS
SERVICES = ("ec2", "elb", "elbv2")
RACE_RETRY = 1.0  # seconds until what appeared or went away meanwhile is read again
MAX_FILTER_VALUES = 200
MAX_INSTANCES_PER_PAGE = 1000
MAX_TAGGED_PER_CALL = 20
MAX_LISTED = 400  # load balancers or target groups on one page
MAX_LISTED_INSTANCES = 4000  # behind classic ones: about 300 kB
LARGE_TTL = 3600.0  # seconds for which load balancers count as more: many may go
LISTING = {"Filters", "MaxResults", "PageSize", "NextToken", "Marker"}
"""Parameters of reads that several ask for; others are about one object."""
MAX_MESSAGE = 100_000  # characters of an error in which instances are looked for
ID_NOT_FOUND, ID_MALFORMED = "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"
ELB_NOT_FOUND = ("LoadBalancerNotFound", "AccessPointNotFound")


def _codes(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


THROTTLING_CODES = _codes("""
    BandwidthLimitExceeded DependencyThrottle EC2ThrottledException RequestLimitExceeded
    RequestThrottled RequestThrottledException SlowDown ThrottledException Throttling
    ThrottlingException TooManyRequestsException
""")
DENIED_CODES = _codes("""
    AccessDenied AccessDeniedException OptInRequired RequestExpired UnauthorizedOperation
""")
UNAUTHENTICATED_CODES = _codes("""
    AuthFailure ExpiredToken ExpiredTokenException IncompleteSignature InvalidAccessKeyId
    InvalidClientTokenId MissingAuthenticationToken SignatureDoesNotMatch
    UnrecognizedClientException
""")
NOT_YOURS = "AuthFailure"
"""With 400 it says that an object, which a tenant may have named, is another account's."""
NOT_ALLOWED_CODES = _codes("AccessDenied AccessDeniedException UnauthorizedOperation")
"""Those of `DENIED_CODES` that say that the credentials are right, but lack this action."""
TRANSIENT_CODES = _codes("""
    DependencyViolation IncorrectInstanceState IncorrectState InvalidGroup.NotFound
    InvalidInstanceID.NotFound InvalidNetworkInterfaceID.NotFound InvalidSecurityGroup
    PriorRequestNotComplete ResourceInUse
""")
"""Client errors that pass by themselves: not ready yet, or not visible everywhere yet."""
QUOTA_CODES = _codes("""
    RulesPerSecurityGroupLimitExceeded SecurityGroupLimitExceeded TargetGroupAssociationLimit
    TooManyLoadBalancers TooManyRegistrationsForTargetId TooManyTargetGroups TooManyTargets
""")
"""Quotas that load balancers share: there is room again when one of them is deleted."""


class AwsError(CloudError):
    """AWS answered with an error; `code` is AWS's. Retried with back-off.

    `message` is AWS's, also beyond what is shown of it.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message[:MAX_MESSAGE]


class AwsRefused(AwsError, Refused):
    """AWS will answer the same until something is changed."""


class AwsNoRoom(AwsRefused, NoRoom):
    """A quota of `QUOTA_CODES` is used up."""


class NotAllowed(Denied):
    """No policy lets these credentials make this call."""


class AwsApi:
    """The calls of `API_ACTIONS`, each a single HTTP request.

    Raises `Denied`, `NotAllowed`, `Throttled`, `AwsRefused`, `AwsNoRoom`, `AwsError` for other
    errors of AWS, and `CloudError` for everything that is no answer.
    """

    def __init__(self, config: AwsConfig, region: str, gate: Gate, caller: str) -> None:
        self._gate, self._reads, self.region = gate, SharedBlockingReads(gate), region
        self._timeout = config.call_timeout
        self._warned_of: set[str] = set()
        self._large_listings: dict[str, float] = {}
        """Calls that list too much to find one in it, and until when."""
        limit_time()
        session = new_session()
        session.register_component("data_loader", _SDK_DATA)
        who = config, region, caller, _options(config, caller)
        self._credentials = AwsCredentials(lambda: find_credentials(*who), config.call_timeout)
        use_credentials(session, self._credentials)
        self._clients = {name: _client(session, name, config, region, caller) for name in SERVICES}

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()

    def call(self, name: str, **parameters: Any) -> Json:
        """The answer to one call, such as `ec2:DescribeInstances`."""
        action = API_ACTIONS[name]
        client = self._clients[action.service]
        method = getattr(client, xform_name(action.operation))
        model = client.meta.service_model.operation_model(action.operation)

        def send() -> Json:
            try:
                with time_limit(self._timeout):
                    answer: Json = method(**parameters)
                check_members(model, answer)
            except UNREADABLE as error:
                failure = to_cloud_error(action.operation, error)
                if isinstance(failure, NotAllowed):
                    failure = NotAllowed(f"{failure}; allow {action.iam_name}")
                if isinstance(failure, Unauthenticated):
                    failure = self._credentials.refused(failure)
                raise failure from error
            self._credentials.accepted()
            return answer

        with self._credentials.shown():
            if not action.is_write and parameters.keys() <= LISTING:
                key = f"{name} {sorted(parameters.items())}"
                return self._reads.call_blocking(key, action.operation, action.budget, send)
            return self._gate.call_blocking(
                action.operation, action.budget, send, is_write=action.is_write
            )

    def list_pages(self, name: str, member: str, **parameters: Any) -> list[Json]:
        """What all pages of the answer have under `member`; never a part of it."""
        is_ec2 = name.startswith("ec2:")
        sent, received = ("NextToken", "NextToken") if is_ec2 else ("Marker", "NextMarker")
        items: list[Json] = []
        tokens, elements = set[str](), 0
        while True:
            answer = self.call(name, **parameters)
            elements += answer.get(ELEMENTS, 0)
            if elements > MAX_VALUES:
                raise CloudError(f"{name}: all pages have more than {MAX_VALUES} elements")
            items += answer.get(member) or []
            token = answer.get(received)
            if not token:
                return items
            if token in tokens:
                raise CloudError(f"the pages of {name} go round in a circle")
            if len(tokens) == MAX_PAGES:
                raise CloudError(f"{name}: more than {MAX_PAGES} pages")
            tokens.add(token)
            parameters[sent] = token

    def read_if_allowed(
        self, otherwise: T, read: Callable[P, T], *args: P.args, **parameters: P.kwargs
    ) -> T:
        """What is read; `otherwise`, with a warning, where no policy allows to read it."""
        try:
            return read(*args, **parameters)
        except NotAllowed as error:
            operation = str(error).partition(":")[0]  # the rest is another one each time
            if operation not in self._warned_of:
                self._warned_of.add(operation)
                log.warning("done without a read that is not allowed", extra={"why": str(error)})
            return otherwise

    def describe_instances(self, **parameters: Any) -> list[Json]:
        """The instances in all reservations on all pages."""
        reservations = self.list_pages("ec2:DescribeInstances", "Reservations", **parameters)
        return [i for reservation in reservations for i in objects(reservation.get("Instances"))]

    def describe_instance(self, instance_id: str) -> Json:
        """The one with this ID."""
        found = self.describe_instances(InstanceIds=[instance_id])
        for record in objects_with(found, "InstanceId", instance_id):
            return record
        raise CloudError(f"EC2's answer leaves {instance_id} out")

    def find_instances(self, instance_ids: Sequence[str]) -> list[Json]:
        """Those that exist: a filter, unlike a list of IDs, takes IDs that do not."""
        found: list[Json] = []
        for values in batches(instance_ids, MAX_FILTER_VALUES):
            filters = [{"Name": "instance-id", "Values": list(values)}]
            some = self.describe_instances(Filters=filters, MaxResults=MAX_INSTANCES_PER_PAGE)
            found += objects_with(some, "InstanceId", *values)
        return found

    def find_balancer(self, call: str, member: str, key: str, name: str) -> Json | None:
        """The record of the load balancer with this name, of any owner.

        In most accounts one page has them all; a listing of it costs as much as a read of one name,
        and is shared by all who ask. Where it is large, they are read by name, the parameter `key`:
        several pages are not of one moment, and prove of none that it is not there.
        """
        if time.monotonic() >= self._large_listings.get(call, 0.0):
            records = self.list_pages(call, member, PageSize=MAX_LISTED)
            instances = sum(len(objects(record.get("Instances"))) for record in records)
            if len(records) <= MAX_LISTED and instances <= MAX_LISTED_INSTANCES:
                return _named(name, records)
            self._large_listings[call] = time.monotonic() + LARGE_TTL
        try:
            return _named(name, self.list_pages(call, member, **{key: [name]}))
        except AwsError as error:
            if error.code in ELB_NOT_FOUND:
                return None
            raise

    def describe_tags(self, name: str, key: str, values: Sequence[str]) -> dict[str, Tags]:
        """The tags of load balancers and the like, by what `key` names them with; of all."""
        found: dict[str, Tags] = {}
        for asked in batches(values, MAX_TAGGED_PER_CALL):
            answer = self.call(name, **{f"{key}s": list(asked)})
            for record in objects(answer.get("TagDescriptions")):
                found[text(record.get(key))] = read_tags(record.get("Tags"))
        if missing := set(values) - found.keys():
            raise CloudError(f"the answer to {name} leaves out {', '.join(sorted(missing))}")
        return found


def _named(name: str, records: list[Json]) -> Json | None:
    return next(iter(objects_with(records, "LoadBalancerName", name)), None)


def call_without_wrong_ids(
    codes: Collection[str], instance_ids: Iterable[str], call: Callable[[list[str]], T]
) -> tuple[T | None, dict[str, str]]:
    """Call for all IDs, and again without those that an error of `codes` names, until it is taken.

    The answer, None when no ID is left, and the code for each wrong ID. AWS fails the whole call
    for one wrong ID; each round takes at least one away, so there are as many rounds as errors.
    """
    left, wrong = list(instance_ids), dict[str, str]()
    while left:
        try:
            return call(left), wrong
        except AwsError as error:
            named = {*INSTANCE_ID.findall(error.message)} & {*left}
            if error.code not in codes or not named:
                raise
            wrong |= dict.fromkeys(named, error.code)
            left = [item for item in left if item not in named]
    return None, wrong


@contextmanager
def retry_on(codes: Collection[str]) -> Iterator[None]:
    """Raise `RetryAfter` in place of these errors: something appeared or went away meanwhile."""
    try:
        yield
    except AwsError as error:
        if error.code in codes:
            raise RetryAfter(f"{error}: read again", RACE_RETRY) from error
        raise


def to_cloud_error(operation: str, error: Exception) -> CloudError:
    """The error to raise for what the SDK raised."""
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        remedy = "give credentials in one of AWS's usual ways"
        return Unauthenticated(f"{operation}: {error}: {remedy}")
    if not isinstance(error, ClientError):
        return CloudError(f"{operation}: {type(error).__name__}: {error}")
    details = mapping(error.response.get("Error"))
    metadata = mapping(error.response.get("ResponseMetadata"))
    code, status = text(details.get("Code")), metadata.get("HTTPStatusCode", 0)
    message = f"{operation}: {code}: {text(details.get('Message'))}"
    if code in THROTTLING_CODES or (status == 429 and code not in TRANSIENT_CODES):
        seconds = text(mapping(metadata.get("HTTPHeaders")).get("retry-after"))
        return Throttled(message, float(seconds) if seconds.isdecimal() else None)
    if code in NOT_ALLOWED_CODES:
        return NotAllowed(message)
    if code == NOT_YOURS and status == 400:
        return AwsRefused(message, code)
    if code in UNAUTHENTICATED_CODES or status == 401:
        return Unauthenticated(message)
    if code in DENIED_CODES or status == 403:
        return Denied(message)
    is_answered = bool(code) and 400 <= status < 500 and status != 408
    if code in TRANSIENT_CODES or not is_answered:
        return AwsError(message, code)
    return AwsNoRoom(message, code) if code in QUOTA_CODES else AwsRefused(message, code)


def _load_sdk_data() -> Loader:
    """What botocore knows of the services, 20 MB that workers share which are forked after this."""
    loader = Loader()
    for name in SERVICES:
        for kind in ("service-2", "endpoint-rule-set-1"):
            loader.load_service_model(name, kind)
    for name in ("endpoints", "partitions", "_retry", "sdk-default-configuration"):
        loader.load_data(name)
    return loader


_SDK_DATA = _load_sdk_data()


def sdk_region() -> str:
    """The region of the environment or the profile; empty when neither names one."""
    return get_session().get_config_variable("region") or ""


def sdk_regions() -> list[str]:
    """All regions that this version of the SDK knows."""
    session = get_session()
    partitions = session.get_available_partitions()
    return [region for name in partitions for region in session.get_available_regions("ec2", name)]


def _client(session: Session, name: str, config: AwsConfig, region: str, caller: str) -> Any:
    options, endpoint = _options(config, caller), config.endpoint(name, region)
    if endpoint and endpoint.signing_name:
        options = options.merge(Config(signing_name=endpoint.signing_name))
    client = session.create_client(
        name,
        region_name=endpoint.signing_region if endpoint else region,
        endpoint_url=endpoint.url if endpoint else None,
        config=options,
    )
    client.meta.events.register("before-parse", check_body)
    return client


def _options(config: AwsConfig, caller: str) -> Config:
    return Config(
        connect_timeout=min(CONNECT_TIMEOUT, config.call_timeout),
        read_timeout=config.call_timeout,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=MAX_CONNECTIONS,
        user_agent_extra=f"ccm-supervisor/{caller}",
    )
