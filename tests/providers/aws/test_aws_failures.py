"""What becomes of AWS's error codes: the caller does something else for each class."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from ccm.errors import CloudError, Denied, NoRoom, Refused, Throttled, Unauthenticated
from ccm.providers.aws.client import AwsError, AwsRefused, to_cloud_error

ANSWERS = [
    (503, "RequestLimitExceeded", Throttled),
    (400, "Throttling", Throttled),
    (400, "DependencyThrottle", Throttled),  # EC2 refused ELB for rate
    (429, "Whatever", Throttled),
    (429, "PriorRequestNotComplete", AwsError),  # work in progress, not too many calls
    (403, "UnauthorizedOperation", Denied),
    (400, "ExpiredToken", Denied),
    (400, "DependencyViolation", AwsError),
    (400, "InvalidInstanceID.NotFound", AwsError),  # not visible everywhere yet
    (500, "InternalError", AwsError),
    (200, "", AwsError),
    (404, "", AwsError),  # not AWS's word
    (400, "InvalidParameterValue", AwsRefused),
    (400, "TooManyLoadBalancers", NoRoom),
    (400, "TooManyTargetGroups", NoRoom),
    (400, "TooManyRegistrationsForTargetId", NoRoom),
    (400, "SecurityGroupLimitExceeded", NoRoom),
]


@pytest.mark.parametrize(("status", "code", "kind"), ANSWERS)
def test_an_answer_is_of_the_kind_that_the_caller_acts_upon(
    status: int, code: str, kind: type[CloudError]
) -> None:
    answer = {
        "Error": {"Code": code, "Message": "why"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "7"}},
    }
    failure = to_cloud_error("Do", ClientError(answer, "Do"))
    assert isinstance(failure, kind)
    assert isinstance(failure, Refused) is issubclass(kind, Refused)
    assert isinstance(failure, NoRoom) is (kind is NoRoom)
    assert str(failure) == f"Do: {code}: why"
    assert not isinstance(failure, Throttled) or failure.seconds == 7.0


def test_no_answer_is_no_refusal() -> None:
    broken = to_cloud_error("Do", EndpointConnectionError(endpoint_url="http://x"))
    assert type(broken) is CloudError
    assert isinstance(to_cloud_error("Do", NoCredentialsError()), Denied)


def test_what_is_anothers_says_nothing_of_our_credentials() -> None:
    """EC2 has one code for both, and a tenant may name an address of another account.

    Where credentials are refused, all calls wait: one Service would hold up all others.
    """
    said = {"Code": "AuthFailure", "Message": "The address 192.0.2.7 does not belong to you."}
    answer: Any = {"Error": said, "ResponseMetadata": {"HTTPStatusCode": 400}}
    failure = to_cloud_error("DescribeAddresses", ClientError(answer, "DescribeAddresses"))
    assert type(failure) is AwsRefused
    answer["ResponseMetadata"]["HTTPStatusCode"] = 401
    failure = to_cloud_error("DescribeAddresses", ClientError(answer, "DescribeAddresses"))
    assert isinstance(failure, Unauthenticated)
