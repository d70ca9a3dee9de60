"""An AWS account with a cluster in it, made in the emulator; and a provider started against it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from ccm.cloud.gate import invoke
from ccm.cloud.interface import Gate, ProviderContext
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import port, service
from ccm.model.cloud import Answer, Balancer, Route
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.aws.config import AwsTimings
from ccm.providers.aws.elb.annotations import PREFIX
from ccm.providers.aws.provider import AwsCloud
from ccm.providers.aws.tags import tag_list
from tests.providers.aws.emulator import REGION, Emulator
from tests.providers.aws.proxy import Proxy

CLUSTER = "kit"
MARK = f"kubernetes.io/cluster/{CLUSTER}"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
IMAGE = "ami-12345678"


def tags(**more: str) -> list[dict[str, str]]:
    """Tags of an object of the cluster."""
    return tag_list({MARK: "owned", **{k.replace("_", "/"): v for k, v in more.items()}})


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

    @property
    def elb(self) -> Any:
        return self.emulator.client("elb")

    @property
    def elbv2(self) -> Any:
        return self.emulator.client("elbv2")

    def tag(self, resource: str, key: str = MARK, value: str = "owned") -> None:
        self.ec2.create_tags(Resources=[resource], Tags=[{"Key": key, "Value": value}])

    def untag(self, *resources: str) -> None:
        """Take the cluster's tag away."""
        self.ec2.delete_tags(Resources=list(resources), Tags=[{"Key": MARK}])

    def add_ipv6(self, is_reached: bool = True, only: Sequence[str] = ()) -> None:
        """An IPv6 network for each subnet, or `only` these; the public ones may be reached."""
        ec2 = self.ec2
        made = ec2.associate_vpc_cidr_block(VpcId=self.vpc, AmazonProvidedIpv6CidrBlock=True)
        whole = ip_network(made["Ipv6CidrBlockAssociation"]["Ipv6CidrBlock"])
        subnets = [*self.public.values(), *self.private.values()]
        for subnet, network in zip(subnets, whole.subnets(new_prefix=64), strict=False):
            if not only or subnet in only:
                ec2.associate_subnet_cidr_block(SubnetId=subnet, Ipv6CidrBlock=str(network))
        for table in ec2.describe_route_tables()["RouteTables"]:
            gateways = {route.get("GatewayId", "") for route in table["Routes"]}
            for gateway in (one for one in gateways if is_reached and one.startswith("igw-")):
                ec2.create_route(
                    RouteTableId=table["RouteTableId"],
                    DestinationIpv6CidrBlock="::/0",
                    GatewayId=gateway,
                )

    def make_group(self, name: str) -> str:
        """A security group without tags and rules; its ID."""
        made = self.ec2.create_security_group(GroupName=name, Description=name, VpcId=self.vpc)
        return str(made["GroupId"])

    def make_subnet(self, cidr: str, zone: str) -> str:
        """A subnet without tags; its ID."""
        made = self.ec2.create_subnet(VpcId=self.vpc, CidrBlock=cidr, AvailabilityZone=zone)
        return str(made["Subnet"]["SubnetId"])

    def make_table(self) -> str:
        """A route table without tags; its ID."""
        return str(self.ec2.create_route_table(VpcId=self.vpc)["RouteTable"]["RouteTableId"])

    def add_interface(self, instance: Json, subnet: str) -> Json:
        """A second network interface for an instance."""
        second: Json = self.ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]
        self.ec2.attach_network_interface(
            NetworkInterfaceId=second["NetworkInterfaceId"],
            InstanceId=instance["InstanceId"],
            DeviceIndex=1,
        )
        return second

    def targets(self, group: Json) -> list[str]:
        """The instances in a target group, without those that are being taken out."""
        health = self.elbv2.describe_target_health(TargetGroupArn=group["TargetGroupArn"])
        return [
            one["Target"]["Id"]
            for one in health["TargetHealthDescriptions"]
            if one["TargetHealth"]["State"] != "draining"
        ]

    def launch(self, count: int = 1, zone: str = ZONES[0], **options: Any) -> list[Json]:
        """Running instances of the cluster, in one reservation."""
        usual = {
            "SubnetId": self.public[zone],
            "SecurityGroupIds": [self.nodes_group],
            "TagSpecifications": tagged("instance"),
            "InstanceType": "m5.large",
        }
        made = self.ec2.run_instances(
            MinCount=count, MaxCount=count, ImageId=IMAGE, **{**usual, **options}
        )
        answer = self.ec2.describe_instances(
            InstanceIds=[i["InstanceId"] for i in made["Instances"]]
        )
        found: list[Json] = answer["Reservations"][0]["Instances"]
        return found

    def classic_elbs(self, is_deep: bool = False) -> Iterator[Json]:
        """All Classic Load Balancers; with tags and attributes when `is_deep`."""
        elb = self.elb
        for one in elb.describe_load_balancers()["LoadBalancerDescriptions"]:
            if is_deep:
                name = one["LoadBalancerName"]
                one["tags"] = elb.describe_tags(LoadBalancerNames=[name])["TagDescriptions"]
                answer = elb.describe_load_balancer_attributes(LoadBalancerName=name)
                one["attributes"] = answer["LoadBalancerAttributes"]
            yield one

    def nlbs(self, is_deep: bool = False) -> Iterator[Json]:
        """All NLBs with listeners and target groups; with tags and attributes when `is_deep`."""
        elbv2 = self.elbv2
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
                group["targets"] = self.targets(group)
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
        found: list[Json] = self.elbv2.describe_target_groups()["TargetGroups"]
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


async def started(
    account: Account,
    url: str,
    extra: str = "",
    *,
    has_cluster_id: bool = True,
    allow_untagged: bool = False,
    caller: str = "test",
    timings: AwsTimings = AwsTimings(),
    gate: Gate | None = None,
) -> AwsCloud:
    """A provider at work, with `extra` lines in its configuration; close it."""
    config = config_text(account, url, extra)
    if not has_cluster_id:
        config = config.replace(f"KubernetesClusterID = {CLUSTER}", "")
    context = ProviderContext(
        gate or KitGate(10.0), config.encode(), "cloud.conf", "test", caller, allow_untagged
    )
    cloud = AwsCloud(timings)
    await cloud.initialize(context)
    return cloud


def node(name: str, provider_id: str = "", **meta: Any) -> Node:
    return Node({"metadata": {"name": name, **meta}, "spec": {"providerID": provider_id}})


def node_of(instance: Json, pod_cidrs: Sequence[str] = ()) -> Node:
    """The initialized Node of an instance."""
    zone, instance_id = instance["Placement"]["AvailabilityZone"], instance["InstanceId"]
    spec = {"providerID": f"aws:///{zone}/{instance_id}", "podCIDRs": list(pod_cidrs)}
    return Node({"metadata": {"name": instance["PrivateDnsName"]}, "spec": spec})


@dataclass
class Aws(Account):
    """An account, and a provider at work in it that reaches it through a proxy."""

    proxy: Proxy
    cloud: AwsCloud = field(init=False)
    _started: list[AwsCloud] = field(default_factory=list)

    async def start(self, *args: Any, **options: Any) -> None:
        """Another process of the provider takes over, with options as of `started`."""
        self.cloud = await started(self, self.proxy.url, *args, **options)
        self._started.append(self.cloud)

    async def close(self) -> None:
        for cloud in self._started:
            await cloud.close()

    async def describe(self, *nodes: Node) -> dict[str, Answer]:
        assert self.cloud.instances
        return dict(await invoke(self.cloud.instances.describe, nodes))

    async def ensure(self, one: Service, nodes: Sequence[Node] = ()) -> Balancer:
        assert self.cloud.load_balancers
        return await invoke(self.cloud.load_balancers.ensure, one, nodes)

    async def update_nodes(self, one: Service, nodes: Sequence[Node]) -> None:
        assert self.cloud.load_balancers
        await invoke(self.cloud.load_balancers.update_nodes, one, nodes)

    async def delete(self, one: Service) -> None:
        assert self.cloud.load_balancers
        await invoke(self.cloud.load_balancers.delete, one)

    async def list_routes(self, *nodes: Node) -> list[Route]:
        assert self.cloud.routes
        return list(await invoke(self.cloud.routes.list, nodes))

    async def create_route(self, node: Node, cidr: str = "") -> None:
        """A route to the Node's first pod network, if none is given."""
        assert self.cloud.routes
        await invoke(self.cloud.routes.create, node, cidr or node.pod_cidrs[0])

    async def delete_route(self, route: Route) -> None:
        assert self.cloud.routes
        await invoke(self.cloud.routes.delete, route)


def asking(kind: str, name: str = "web", *numbers: int, **annotations: str) -> Service:
    """A Service of these ports for a load balancer of this type."""
    asked = {"type": kind} | {key.replace("_", "-"): value for key, value in annotations.items()}
    ports = [port(number, node_port=30000 + number) for number in numbers or (80,)]
    return service(name, {PREFIX + key: value for key, value in asked.items()}, ports=ports)
