"""Records of AWS that are odd, and lists that have more than was asked for, without an emulator."""

from typing import Any, cast

import pytest
from botocore.parsers import ResponseParserError

from ccm.model.cloud import Instance
from ccm.model.objects import Json
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.instances import read_instance
from ccm.providers.aws.vpc import Vpc
from ccm.providers.aws.wire import check_body

RECORD: Json = {
    "InstanceId": "i-0123456789abcdef0",
    "State": {"Name": "running"},
    "Placement": {"AvailabilityZone": "us-east-1a"},
    "PrivateDnsName": "ip-10-0-0-1.ec2.internal",
}


def with_ipv6(**address: Any) -> Json:
    return RECORD | {"NetworkInterfaces": [{"Status": "in-use", "Ipv6Addresses": [address]}]}


def test_an_address_that_is_left_out_is_none() -> None:
    answer = read_instance(with_ipv6(), "us-east-1", ["ipv6"])
    assert isinstance(answer, Instance)
    assert answer.addresses == ()


def test_no_security_group_of_another_name_is_found() -> None:
    """What does not know a filter, or loses it on the way, lists all: the default group first."""

    class Unfiltered:
        def list_pages(self, name: str, member: str, **_: Any) -> list[Json]:
            return [
                {"GroupId": "sg-1", "GroupName": "default"},
                {"GroupId": "sg-2", "GroupName": "k"},
            ]

    vpc = Vpc(cast(AwsApi, Unfiltered()), "vpc-1", 60.0)
    assert [group.id for group in vpc.security_groups("k")] == ["sg-2"]
    assert vpc.security_groups("other") == []
    assert len(vpc.security_groups()) == 2


def test_no_load_balancer_of_another_name_is_found() -> None:
    class Unfiltered(AwsApi):
        def __init__(self) -> None:
            self._large_listings = {"elb:DescribeLoadBalancers"}

        def list_pages(self, name: str, member: str, **_: Any) -> list[Json]:
            return [{"LoadBalancerName": "theirs"}, {"LoadBalancerName": "own"}]

    call, member, key = "elb:DescribeLoadBalancers", "LoadBalancerDescriptions", "LoadBalancerNames"
    assert Unfiltered().find_balancer(call, member, key, "own") == {"LoadBalancerName": "own"}
    assert Unfiltered().find_balancer(call, member, key, "other") is None


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "{text}">]>'
    "<Response><Errors><Error><Code>{code}</Code></Error></Errors></Response>"
)


@pytest.mark.parametrize("status", [200, 400, 503])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_an_answer_with_entities_is_not_read(status: int, encoding: str) -> None:
    """Each byte of it may be a hundred in memory."""
    body = BOMB.format(text="a" * 10, code="&a;" * 10).encode(encoding)
    model = cast(Any, type("Model", (), {"name": "DescribeInstances"}))
    with pytest.raises(ResponseParserError, match="this is not an answer"):
        check_body(model, {"body": body, "status_code": status})


def test_an_answer_of_millions_of_elements_is_not_read() -> None:
    model = cast(Any, type("Model", (), {"name": "DescribeInstances"}))
    body = b"<DescribeInstancesResponse>" + b"<a/>" * 4_100_000 + b"</DescribeInstancesResponse>"
    with pytest.raises(ResponseParserError, match="more than 4000000 elements"):
        check_body(model, {"body": body, "status_code": 200})
