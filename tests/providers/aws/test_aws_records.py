"""Records of AWS that are odd, and lists that have more than was asked for, without an emulator."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.parsers import ResponseParserError

from ccm.cloud.shared_read import KEPT_RETRY
from ccm.cloud.testkit.harness import node, service
from ccm.errors import CloudError
from ccm.model.cloud import Instance
from ccm.model.objects import Json
from ccm.providers.aws.client import LARGE_TTL, MAX_LISTED, AwsApi
from ccm.providers.aws.config import AwsConfig, AwsTimings
from ccm.providers.aws.elb.annotations import Annotations
from ccm.providers.aws.elb.load_balancers import ElbDependencies
from ccm.providers.aws.elb.nlb_desired import ObservedNlb
from ccm.providers.aws.elb.nlb_reads import with_listeners
from ccm.providers.aws.instances import read_instance
from ccm.providers.aws.routes import AwsRoutes
from ccm.providers.aws.tags import ClusterTagging
from ccm.providers.aws.vpc import ZONE_CACHE_TTL, Vpc, Zones
from ccm.providers.aws.wire import check_body, new_session

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
            self._large_listings = {"elb:DescribeLoadBalancers": float("inf")}

        def list_pages(self, name: str, member: str, **_: Any) -> list[Json]:
            return [{"LoadBalancerName": "theirs"}, {"LoadBalancerName": "own"}]

    call, member, key = "elb:DescribeLoadBalancers", "LoadBalancerDescriptions", "LoadBalancerNames"
    assert Unfiltered().find_balancer(call, member, key, "own") == {"LoadBalancerName": "own"}
    assert Unfiltered().find_balancer(call, member, key, "other") is None


def test_load_balancers_that_were_many_for_a_while_are_found_in_one_list_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As another cluster's were: each was read by its name until a restart, a call a Service."""
    now, named = 0.0, list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now)

    class Others(AwsApi):
        def __init__(self) -> None:
            self._large_listings, self.others = {}, MAX_LISTED

        def list_pages(self, name: str, member: str, **asked: Any) -> list[Json]:
            named.extend(asked.get("Names", []))
            return [{"LoadBalancerName": f"lb-{number}"} for number in range(self.others + 1)]

    account = Others()
    for others, by_name in ((MAX_LISTED, ["lb-0", "lb-0"]), (1, [])):
        account.others = others
        for _ in range(2):
            assert account.find_balancer("elbv2:Describe", "LoadBalancers", "Names", "lb-0")
        assert named == by_name
        now += LARGE_TTL
        named.clear()


class Account(AwsApi):
    """One that answers with everything it has, whatever is asked for."""

    region = "us-east-1"

    def __init__(self, **records: list[Json]) -> None:
        self._records = records

    def list_pages(self, name: str, member: str, **_: Any) -> list[Json]:
        return self._records[member]


TAG = ClusterTagging("kit", None)


def test_no_route_of_a_table_that_is_not_configured_is_listed() -> None:
    route = {"DestinationCidrBlock": "10.244.0.0/24", "InstanceId": "i-1"}
    tables = [{"RouteTableId": f"rtb-{name}", "Routes": [route]} for name in ("theirs", "own")]
    routes = AwsRoutes(Account(RouteTables=tables), TAG, "rtb-own").list([])
    assert [item.id for item in routes] == ["rtb-own@10.244.0.0/24"]
    with pytest.raises(CloudError, match="rtb-other"):
        AwsRoutes(Account(RouteTables=tables), TAG, "rtb-other").list([])


def test_no_route_is_made_to_an_instance_that_was_not_asked_for() -> None:
    tags = [{"Key": "kubernetes.io/cluster/kit", "Value": "owned"}]
    instances = [{"InstanceId": "i-0123456789abcdef1", "Tags": tags}]
    tables = [{"RouteTableId": "rtb-own"}]
    account = Account(Reservations=[{"Instances": instances}], RouteTables=tables)
    host = node("n", "aws:///us-east-1a/i-0123456789abcdef0")
    with pytest.raises(CloudError, match="leaves i-0123456789abcdef0 out"):
        AwsRoutes(account, TAG, "rtb-own").create(host, "10.244.0.0/24")


def test_a_listener_of_another_load_balancer_is_not_the_services() -> None:
    listeners = [
        {"LoadBalancerArn": f"arn:{name}", "ListenerArn": f"arn:{name}/{port}", "Port": port}
        for name, port in (("theirs", 22), ("own", 80))
    ]
    observed = ObservedNlb(nlb=None, listeners={}, groups={}, arn="arn:own")
    found = with_listeners(Account(Listeners=listeners), observed).listeners
    assert [item.arn for item in found.values()] == ["arn:own/80"]


def test_subnets_and_route_tables_of_another_vpc_do_not_count() -> None:
    """The main table of the default VPC leads to the internet."""
    subnets = [{"VpcId": f"vpc-{at}", "SubnetId": f"subnet-{at}"} for at in (1, 2)]
    main, out = [{"Main": True}], [{"GatewayId": "igw-1"}]
    tables: list[Json] = [
        {"VpcId": "vpc-1", "Associations": main, "Routes": []},
        {"VpcId": "vpc-2", "Associations": main, "Routes": out},
    ]
    account = Account(Subnets=subnets, RouteTables=tables, AvailabilityZones=[])
    vpc = Vpc(account, "vpc-1", 60.0)
    cast(Any, vpc).zones = type("None_", (), {"by_name": lambda self, names: {}})()
    assert [(item.id, item.is_public) for item in vpc.subnets()] == [("subnet-1", False)]


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "{text}">]>'
    "<Response><Errors><Error><Code>{code}</Code></Error></Errors></Response>"
)


def test_a_list_without_the_subnets_of_load_balancers_moves_none() -> None:
    """Their health checks would be let in no more, and what was read is kept for all of them."""
    listed: list[Json] = []

    class Api:
        def list_pages(self, name: str, member: str, **_: Any) -> list[Json]:
            return listed if member == "Subnets" else []

        def call(self, name: str, **_: Any) -> Json:
            return {}

    vpc = Vpc(cast(AwsApi, Api()), "vpc-1", 60.0)
    vpc.zones.by_name = lambda names: {}  # type: ignore[method-assign]
    assert vpc.subnets() == []
    with pytest.raises(CloudError, match="does not list s-1, which is in use"):
        vpc.subnets(["s-1"])
    listed.append({"SubnetId": "s-1", "VpcId": "vpc-1", "CidrBlock": "10.0.0.0/24"})
    assert [item.id for item in vpc.subnets(["s-1"])] == ["s-1"]


@pytest.mark.parametrize(("in_use", "lacks"), [(["s-a", "s-b"], "Associations"), ([], "Routes")])
def test_a_balancer_leaves_no_zone_by_one_answer_that_lacks_a_route(
    in_use: list[str], lacks: str
) -> None:
    """Its clients and Nodes there were cut off for half an hour; a new one was refused."""
    own = {"VpcId": "vpc-1"}
    listed = [own | {"SubnetId": f"s-{zone}", "AvailabilityZone": zone} for zone in "ab"]
    full = own | {"Routes": [{"GatewayId": "igw-1"}], "Associations": listed}
    answers = [full | {lacks: full[lacks][:1] if in_use else []}, full]

    class Api:
        def list_pages(self, name: str, member: str, **_: Any) -> list[Json]:
            return listed if member == "Subnets" else [answers.pop(0)]

    vpc, any_of = Vpc(cast(AwsApi, Api()), "vpc-1", 60.0), cast(Any, None)
    vpc.zones.by_name = lambda names: {}  # type: ignore[method-assign]
    elb = ElbDependencies(any_of, vpc, any_of, AwsConfig(), AwsTimings(), "kit")
    request = cast(Any, SimpleNamespace(annotations=Annotations.of(service()), is_internal=False))
    chosen = elb.subnets_for(request, TAG.cluster_tag(), in_use)
    assert [subnet.id for subnet in chosen] == ["s-a", "s-b"]


@pytest.mark.parametrize("status", [200, 400, 503])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_an_answer_with_entities_is_not_read(status: int, encoding: str) -> None:
    """Each byte of it may be a hundred in memory."""
    body = BOMB.format(text="a" * 10, code="&a;" * 10).encode(encoding)
    model = cast(Any, type("Model", (), {"name": "DescribeInstances"}))
    with pytest.raises(ResponseParserError, match="this is not an answer"):
        check_body(model, {"body": body, "status_code": status}, {})


def test_an_answer_of_millions_of_elements_is_not_read() -> None:
    """Four million take three seconds of one call into C, in which no heartbeat is sent."""
    model = cast(Any, type("Model", (), {"name": "DescribeInstances"}))
    body = b"<DescribeInstancesResponse>" + b"<a/>" * 1_600_000 + b"</DescribeInstancesResponse>"
    with pytest.raises(ResponseParserError, match="more than 1500000 elements"):
        check_body(model, {"body": body, "status_code": 200}, {})


def test_answers_about_credentials_are_checked_as_well() -> None:
    """A role's come from an endpoint that the file names."""
    client = new_session().create_client(
        "sts", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )
    body = BOMB.format(text="a", code="&a;").encode()
    model = client.meta.service_model.operation_model("AssumeRole")
    with pytest.raises(ResponseParserError, match="this is not an answer"):
        client.meta.events.emit(
            "before-parse.sts.AssumeRole",
            operation_model=model,
            response_dict={"body": body, "status_code": 200},
            customized_response_dict={},
        )
    parser = client._endpoint._response_parser_factory.create_parser("query")
    with pytest.raises(ValueError, match="a time of 66 characters"):
        parser._timestamp_parser("1." * 33)


def test_zones_that_are_known_count_while_they_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each Service and Node waited for that read in a lock, and no Service was served."""
    now, calls = 0.0, list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now)

    class Failing(AwsApi):
        def __init__(self) -> None:
            pass

        def call(self, name: str, **_: Any) -> Json:
            calls.append(name)
            if now:
                raise CloudError("no answer within 30 s")
            return {"AvailabilityZones": [{"ZoneName": "us-east-1a", "ZoneId": "use1-az1"}]}

    zones = Zones(Failing())
    zones.by_name({"us-east-1a"})
    now = 2 * ZONE_CACHE_TTL
    for _ in range(3):
        assert zones.by_name({"us-east-1a"})["us-east-1a"].id == "use1-az1"
    assert len(calls) == 2
    with pytest.raises(CloudError):
        zones.by_name({"us-east-1b"})
    now += 2 * KEPT_RETRY
    zones.by_name({"us-east-1a"})
    assert len(calls) == 4
