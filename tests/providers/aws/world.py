"""An AWS account with a cluster in it, made in the emulator; and a provider started against it."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.cloud.gate import invoke
from ccm.cloud.interface import Gate, ProviderContext
from ccm.cloud.testkit.harness import port, service
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.aws.elb.annotations import PREFIX
from ccm.providers.aws.provider import AwsCloud
from tests.providers.aws.emulator import REGION, Emulator
from tests.providers.simulated.doubles import CountingGate

CLUSTER = "kit"
MARK = f"kubernetes.io/cluster/{CLUSTER}"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
IMAGE = "ami-12345678"


def tags(**more: str) -> list[dict[str, str]]:
    """Tags of an object of the cluster."""
    named = {MARK: "owned", **{key.replace("_", "/"): value for key, value in more.items()}}
    return [{"Key": key, "Value": value} for key, value in named.items()]


def tagged(kind: str, **more: str) -> list[Json]:
    """The tags of an object that is being made."""
    return [{"ResourceType": kind, "Tags": tags(**more)}]


@dataclass
class Account:
    """A VPC with a public and a private subnet in each zone, a route table and a nodes' group."""

    emulator: Emulator
    vpc: str
    public: dict[str, str]  # subnets by zone
    private: dict[str, str]
    table: str
    nodes_group: str

    @classmethod
    def make(cls, emulator: Emulator, zones: Sequence[str] = ZONES) -> "Account":
        ec2 = emulator.client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        tables = {}
        for kind in ("public", "private"):
            own = tagged("route-table") if kind == "private" else []
            made = ec2.create_route_table(VpcId=vpc, TagSpecifications=own)["RouteTable"]
            tables[kind] = made["RouteTableId"]
        ec2.create_route(
            RouteTableId=tables["public"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway
        )
        subnets: dict[str, dict[str, str]] = {"public": {}, "private": {}}
        for number, (zone, kind) in enumerate((z, k) for z in zones for k in tables):
            role = {"public": "elb", "private": "internal-elb"}[kind]
            named = {f"kubernetes.io_role_{role}": "1", "Name": f"{kind}-{zone}"}
            made = ec2.create_subnet(
                VpcId=vpc,
                CidrBlock=f"10.0.{16 * number}.0/20",
                AvailabilityZone=zone,
                TagSpecifications=tagged("subnet", **named),
            )["Subnet"]
            subnet = subnets[kind][zone] = made["SubnetId"]
            ec2.associate_route_table(RouteTableId=tables[kind], SubnetId=subnet)
            if kind == "public":
                ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
        group = ec2.create_security_group(
            GroupName="nodes",
            Description="nodes",
            VpcId=vpc,
            TagSpecifications=tagged("security-group"),
        )
        return cls(
            emulator, vpc, subnets["public"], subnets["private"], tables["private"],
            group["GroupId"],
        )  # fmt: skip

    @property
    def ec2(self) -> Any:
        return self.emulator.client("ec2")

    def launch(self, count: int = 1, zone: str = ZONES[0], **options: Any) -> list[Json]:
        """Running instances of the cluster; each is a reservation of its own or all are one."""
        usual = {
            "ImageId": IMAGE,
            "InstanceType": "m5.large",
            "TagSpecifications": tagged("instance"),
        }
        if "NetworkInterfaces" not in options:
            usual |= {"SubnetId": self.public[zone], "SecurityGroupIds": [self.nodes_group]}
        ec2 = self.ec2
        made = ec2.run_instances(MinCount=count, MaxCount=count, **{**usual, **options})
        return [self.instance(one["InstanceId"]) for one in made["Instances"]][:count]

    def launch_many(self, count: int, subnet: str = "") -> list[Json]:
        """As `launch`, with one read for all."""
        made = self.ec2.run_instances(
            MinCount=count,
            MaxCount=count,
            ImageId=IMAGE,
            InstanceType="m5.large",
            SubnetId=subnet or self.public[ZONES[0]],
            SecurityGroupIds=[self.nodes_group],
            TagSpecifications=tagged("instance"),
        )
        ids = [one["InstanceId"] for one in made["Instances"]]
        answer = self.ec2.describe_instances(InstanceIds=ids)
        found: list[Json] = answer["Reservations"][0]["Instances"]
        return found

    def classic_elbs(self, is_deep: bool = False) -> Iterator[Json]:
        """All Classic Load Balancers; with tags and attributes when `is_deep`."""
        elb = self.emulator.client("elb")
        for one in elb.describe_load_balancers()["LoadBalancerDescriptions"]:
            if is_deep:
                name = one["LoadBalancerName"]
                one["tags"] = elb.describe_tags(LoadBalancerNames=[name])["TagDescriptions"]
                answer = elb.describe_load_balancer_attributes(LoadBalancerName=name)
                one["attributes"] = answer["LoadBalancerAttributes"]
            yield one

    def nlbs(self, is_deep: bool = False) -> Iterator[Json]:
        """All NLBs with listeners and target groups; with tags and attributes when `is_deep`."""
        elbv2 = self.emulator.client("elbv2")
        for one in elbv2.describe_load_balancers()["LoadBalancers"]:
            arn = one["LoadBalancerArn"]
            del one["State"]  # moto moves it on by itself
            one["listeners"] = elbv2.describe_listeners(LoadBalancerArn=arn)["Listeners"]
            used = {
                listener["DefaultActions"][0]["TargetGroupArn"] for listener in one["listeners"]
            }
            listed = elbv2.describe_target_groups()["TargetGroups"]
            groups = [group for group in listed if group["TargetGroupArn"] in used]
            for group in groups:
                del group["LoadBalancerArns"]  # moto forgets nothing there
            one["groups"] = {group["TargetGroupArn"]: group for group in groups}
            for group in groups:
                health = elbv2.describe_target_health(TargetGroupArn=group["TargetGroupArn"])
                group["targets"] = [
                    t["Target"]["Id"]
                    for t in health["TargetHealthDescriptions"]
                    if t["TargetHealth"]["State"] != "draining"
                ]
            if is_deep:
                answer = elbv2.describe_load_balancer_attributes(LoadBalancerArn=arn)
                one["attributes"] = answer["Attributes"]
                arns = [arn, *one["groups"]]
                one["tags"] = elbv2.describe_tags(ResourceArns=arns)["TagDescriptions"]
                one["group_attributes"] = [
                    elbv2.describe_target_group_attributes(TargetGroupArn=group)["Attributes"]
                    for group in one["groups"]
                ]
            yield one

    def target_groups(self) -> list[Json]:
        found: list[Json] = self.emulator.client("elbv2").describe_target_groups()["TargetGroups"]
        return found

    def security_groups(self) -> list[Json]:
        """Those of the VPC."""
        in_vpc = [{"Name": "vpc-id", "Values": [self.vpc]}]
        found: list[Json] = self.ec2.describe_security_groups(Filters=in_vpc)["SecurityGroups"]
        return found

    def instance(self, instance_id: str) -> Json:
        answer = self.ec2.describe_instances(InstanceIds=[instance_id])
        found: Json = answer["Reservations"][0]["Instances"][0]
        return found


def config_text(account: Account, url: str, extra: str = "") -> str:
    """A cloud-config for this account, whose services are reached at `url`."""
    overrides = "".join(
        f'[ServiceOverride "{service}"]\nService = {service}\nRegion = {REGION}\n'
        f"URL = {url}\nSigningRegion = {REGION}\n"
        for service in ("ec2", "elasticloadbalancing", "sts")
    )
    return (
        f"[Global]\nRegion = {REGION}\nVPC = {account.vpc}\n"
        f"KubernetesClusterID = {CLUSTER}\n{extra}\n{overrides}"
    )


Start = Callable[..., Awaitable[AwsCloud]]
"""Starts a provider as `started`, and closes it after the test."""


async def started(
    account: Account,
    url: str,
    extra: str = "",
    *,
    has_cluster_id: bool = True,
    allow_untagged: bool = False,
    caller: str = "test",
    gate: Gate | None = None,
) -> AwsCloud:
    """A provider at work, with `extra` lines in its configuration; close it."""
    config = config_text(account, url, extra)
    if not has_cluster_id:
        config = config.replace(f"KubernetesClusterID = {CLUSTER}", "")
    context = ProviderContext(
        gate or CountingGate(), config.encode(), "cloud.conf", "test", caller, allow_untagged
    )
    cloud = AwsCloud()
    await cloud.initialize(context)
    return cloud


def node(name: str, provider_id: str = "", **meta: Any) -> Node:
    return Node({"metadata": {"name": name, **meta}, "spec": {"providerID": provider_id}})


def node_of(instance: Json, pod_cidrs: Sequence[str] = ()) -> Node:
    """The initialised Node of an instance."""
    zone, instance_id = instance["Placement"]["AvailabilityZone"], instance["InstanceId"]
    spec = {"providerID": f"aws:///{zone}/{instance_id}", "podCIDRs": list(pod_cidrs)}
    return Node({"metadata": {"name": instance["PrivateDnsName"]}, "spec": spec})


async def ensure(cloud: AwsCloud, one: Service, hosts: Sequence[Node] = ()) -> None:
    """Make the balancer of a Service, or make it right."""
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.ensure, one, hosts)


async def delete(cloud: AwsCloud, one: Service) -> None:
    """Take the balancer of a Service away."""
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.delete, one)


def asking(kind: str, name: str = "web", *numbers: int, **annotations: str) -> Service:
    """A Service of these ports for a load balancer of this type."""
    asked = {"type": kind} | {key.replace("_", "-"): value for key, value in annotations.items()}
    ports = [port(number, node_port=30000 + number) for number in numbers or (80,)]
    return service(name, {PREFIX + key: value for key, value in asked.items()}, ports=ports)
