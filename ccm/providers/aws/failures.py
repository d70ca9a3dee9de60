"""What AWS's error codes mean for the caller."""

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError

from ccm.errors import CloudError, Denied, NoRoom, Refused, Throttled
from ccm.model.objects import mapping, text

SDK_ERRORS = (BotoCoreError, ClientError, ResponseParserError)

THROTTLED = frozenset(
    {
        "BandwidthLimitExceeded",
        "DependencyThrottle",
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "OptInRequired",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
PASSING = frozenset(
    {
        "DependencyViolation",
        "IncorrectInstanceState",
        "IncorrectState",
        "InvalidGroup.NotFound",
        "InvalidInstanceID.NotFound",
        "InvalidNetworkInterfaceID.NotFound",
        "InvalidSecurityGroup",
        "PriorRequestNotComplete",
        "ResourceInUse",
    }
)
"""Refusals that pass by themselves: something is not ready yet, or not visible everywhere yet."""
USED_UP = frozenset(
    {
        "RulesPerSecurityGroupLimitExceeded",
        "SecurityGroupLimitExceeded",
        "TargetGroupAssociationLimit",
        "TooManyLoadBalancers",
        "TooManyRegistrationsForTargetId",
        "TooManyTargetGroups",
        "TooManyTargets",
    }
)
"""Quotas that balancers share: there is room again when one of them goes."""


class AwsError(CloudError):
    """AWS answered with an error; `code` is its own word for it. Retried with back-off."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class AwsRefusal(AwsError, Refused):
    """AWS will say the same again until something is changed."""


class AwsNoRoom(AwsRefusal, NoRoom):
    """A quota of `USED_UP`."""


def failure_of(operation: str, error: Exception) -> CloudError:
    """The error to raise for what the SDK raised."""
    if isinstance(error, ClientError):
        return _answered(operation, error)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return Denied(f"{operation}: {error}: give credentials in one of AWS's usual ways")
    return CloudError(f"{operation}: {type(error).__name__}: {error}")


def _answered(operation: str, error: ClientError) -> CloudError:
    said = mapping(error.response.get("Error"))
    answer = mapping(error.response.get("ResponseMetadata"))
    code, status = text(said.get("Code")), answer.get("HTTPStatusCode", 0)
    message = f"{operation}: {code}: {text(said.get('Message'))}"
    if code in THROTTLED or (status == 429 and code not in PASSING):
        return Throttled(message, _seconds(mapping(answer.get("HTTPHeaders")).get("retry-after")))
    if code in DENIED or status in (401, 403):
        return Denied(message)
    if code in PASSING or status < 400 or status >= 500 or status == 408:
        return AwsError(message, code)
    return AwsNoRoom(message, code) if code in USED_UP else AwsRefusal(message, code)


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, str) and value.isdecimal() else None
