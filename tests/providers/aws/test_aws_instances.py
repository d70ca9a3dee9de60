"""What the provider says about instances, against the emulator."""

import pytest

from ccm.decide.claims import rightful_node
from ccm.errors import CloudError, Denied, Throttled
from ccm.model.cloud import AddressType, Gone, Instance, Unknown
from ccm.providers.aws.tags import tag_list
from tests.providers.aws.proxy import Garbage, Refusal, Request, Reset
from tests.providers.aws.world import MARK, ZONES, Aws, node, node_of

ABSENT = "aws:///us-east-1a/i-0123456789abcdef0"


async def test_the_id_of_its_zone_is_a_label(aws: Aws) -> None:
    (made,) = aws.launch(zone=ZONES[1])
    (answer,) = (await aws.describe(node(made["PrivateDnsName"]))).values()
    assert isinstance(answer, Instance)
    assert (answer.type, answer.labels) == ("m5.large", {"topology.k8s.aws/zone-id": "use1-az1"})


async def test_a_resource_based_name_is_found_by_the_id_in_it(aws: Aws) -> None:
    (made,) = aws.launch()
    names = [made["InstanceId"], f"{made['InstanceId']}.us-east-1.compute.internal"]
    answers = await aws.describe(*map(node, names))
    for name in names:
        found = answers[name]
        assert isinstance(found, Instance)
        assert rightful_node([node("another"), node(name)], found) == name, (
            "another Node claims it, too"
        )


async def test_a_node_with_a_bare_instance_id_is_ours(aws: Aws) -> None:
    """A form that upstream takes, too."""
    (made,) = aws.launch()
    assert aws.cloud.provider_ids.fullmatch(made["InstanceId"])
    answers = await aws.describe(node("bare", made["InstanceId"]))
    assert isinstance(answers["bare"], Instance)


@pytest.mark.parametrize("count", [2, 150])
async def test_several_ids_in_one_error_cost_one_more_read_injected(aws: Aws, count: int) -> None:
    """AWS names all of them in one message, moto only one. Kubelets may write any number."""
    (made,) = aws.launch()
    ids = [f"i-{at:017x}" for at in range(count)]

    def deny(request: Request) -> Refusal | None:
        asked = {
            value for key, value in request.parameters.items() if key.startswith("InstanceId.")
        }
        if not asked.intersection(ids):
            return None
        message = f"The instance IDs '{', '.join(ids)}' do not exist"
        return Refusal(400, "InvalidInstanceID.NotFound", message)

    aws.proxy.rule = deny
    nodes = [node_of(made), *(node(one, f"aws:///us-east-1a/{one}") for one in ids)]
    answers = await aws.describe(*nodes)
    assert [type(answer) for answer in answers.values()] == [Instance, *([Gone] * count)]
    assert aws.proxy.counted()["ec2:DescribeInstances"] == 3, "the last one is by a filter"


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(403, "UnauthorizedOperation"),
        Refusal(400, "InvalidInstanceID.NotFound", "The instance ID 'i-ffffffffff' does not exist"),
        Refusal(500, "InternalError"),
        Reset(),
        Garbage(),
    ],
    ids=str,
)
async def test_no_error_is_ever_gone_injected(aws: Aws, refusal: Refusal) -> None:
    (made,) = aws.launch()
    for asked in (node(made["PrivateDnsName"]), node_of(made)):
        with aws.proxy.fault("DescribeInstances", refusal), pytest.raises(CloudError) as raised:
            await aws.describe(asked)
        assert isinstance(raised.value, Denied) is ("Unauthorized" in str(refusal))
        assert not isinstance(raised.value, Throttled)


@pytest.mark.parametrize("marks", [{"Name": "theirs"}, {"kubernetes.io/cluster/other": "owned"}])
async def test_an_instance_without_the_clusters_tag_answers_for_no_node(
    aws: Aws, marks: dict[str, str]
) -> None:
    """A kubelet may write any instance's ID into its Node, or register by that name."""
    (made,) = aws.launch(TagSpecifications=[{"ResourceType": "instance", "Tags": tag_list(marks)}])
    name, by_id = made["PrivateDnsName"], node_of(made)
    for asked in (node(name), node(made["InstanceId"]), by_id):
        (answer,) = (await aws.describe(asked)).values()
        assert isinstance(answer, Unknown)
        assert answer.why.endswith(f"does not belong to this cluster: it lacks tag:{MARK}")
    aws.ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    assert isinstance((await aws.describe(by_id))[name], Gone)


async def test_an_instance_of_another_vpc_takes_no_nodes_place(aws: Aws) -> None:
    """Where that has the same addresses it has the same private DNS name."""
    (own,) = aws.launch()
    vpc = aws.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = aws.ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/20")["Subnet"]["SubnetId"]
    group = aws.ec2.create_security_group(GroupName="theirs", Description="theirs", VpcId=vpc)
    (theirs,) = aws.launch(
        SubnetId=subnet,
        SecurityGroupIds=[group["GroupId"]],
        PrivateIpAddress=own["PrivateIpAddress"],
        TagSpecifications=[],
    )
    name = theirs["PrivateDnsName"]
    assert name == own["PrivateDnsName"]
    found = (await aws.describe(node(name)))[name]
    assert isinstance(found, Instance)
    assert found.provider_id == node_of(own).provider_id
    aws.tag(theirs["InstanceId"])
    assert isinstance((await aws.describe(node(name)))[name], Unknown), "both are this cluster's"


async def test_a_zone_id_that_cannot_be_read_is_left_out_injected(aws: Aws) -> None:
    (made,) = aws.launch()
    with aws.proxy.fault("DescribeAvailabilityZones", Refusal(403, "UnauthorizedOperation")):
        (answer,) = (await aws.describe(node_of(made))).values()
    assert isinstance(answer, Instance)
    assert not answer.labels


async def test_without_a_question_nothing_is_asked(aws: Aws) -> None:
    names = ["*", "Upper", "a b"]
    ids = ["aws:///us-east-1a/", "aws:///us-east-1a/vol-1", "aws://x", "gce://p/z/i-12345678"]
    asked = [*map(node, names), *(node(f"n{n}", at) for n, at in enumerate(ids))]
    answers = await aws.describe(*asked)
    assert {type(answer) for answer in answers.values()} == {Unknown}
    assert not aws.proxy.requests


@pytest.mark.parametrize(
    ("families", "kinds"),
    [
        ("ipv4", ["10.", "10.", "ext", "dns", "host", "ext-dns"]),
        ("ipv6", ["2001:"]),
        ("ipv6 ipv4", ["2001:", "10.", "10.", "ext", "dns", "host", "ext-dns"]),
    ],
)
async def test_addresses_are_of_all_interfaces_in_the_configured_order(
    aws: Aws, families: str, kinds: list[str]
) -> None:
    aws.ec2.associate_vpc_cidr_block(VpcId=aws.vpc, Ipv6CidrBlock="2001:db8:1234:1a00::/56")
    (made,) = aws.launch()
    second = aws.add_interface(made, aws.public[ZONES[0]])
    first = made["NetworkInterfaces"][0]["NetworkInterfaceId"]
    aws.ec2.assign_ipv6_addresses(
        NetworkInterfaceId=first, Ipv6Addresses=["2001:db8:1234:1a00::5", "2001:db8:1234:1a00::6"]
    )
    lines = "".join(f"NodeIPFamilies = {family}\n" for family in families.split())
    await aws.start(lines)
    (answer,) = (await aws.describe(node_of(made))).values()
    assert isinstance(answer, Instance)
    names = {
        AddressType.EXTERNAL_IP: "ext",
        AddressType.INTERNAL_DNS: "dns",
        AddressType.HOSTNAME: "host",
        AddressType.EXTERNAL_DNS: "ext-dns",
    }
    seen = [
        names.get(address.type)
        or next(k for k in ("10.", "2001:") if address.address.startswith(k))
        for address in answer.addresses
    ]
    assert seen == kinds
    if "10." in kinds:
        internal = [a.address for a in answer.addresses if a.address.startswith("10.")]
        assert internal == [made["PrivateIpAddress"], second["PrivateIpAddress"]]
