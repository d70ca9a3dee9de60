"""The conformance kit's way around the provider: moto, seen past the proxy that injects faults."""

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ccm.cloud.testkit.adapter import (
    USUAL_FAULTS,
    Disk,
    FaultKind,
    Machine,
    ObservedBalancer,
    ObservedRoute,
    Owner,
    Untestable,
)
from ccm.cloud.testkit.operations import CIDR
from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json
from ccm.model.service import HealthCheck, Service
from ccm.providers.aws.elb.annotations import PREFIX, SUPPORTED_ANNOTATIONS
from ccm.providers.aws.tags import SERVICE_TAG, SERVICE_UID_TAG, tag_list
from tests.providers.aws.emulator import CREDENTIALS, REGION, Emulator
from tests.providers.aws.proxy import (
    Fault,
    Garbage,
    Proxy,
    Refusal,
    Request,
    Silence,
    throttling,
)
from tests.providers.aws.world import MARK, ZONES, Account, config_text
from tests.providers.patience import PatientAdapter

TAGS = {
    Owner.NOBODY: {"Name": "theirs"},
    Owner.OTHER_CLUSTER: {"kubernetes.io/cluster/other": "owned"},
    Owner.OTHER_SERVICE: {MARK: "owned", "kubernetes.io/service-name": "default/another"},
}
SECRET = "secret-access-key-of-the-kit"
ECHOED = f"{SECRET}: " + "no\n" * 1_500_000
FAULTS: Mapping[FaultKind, Fault] = {
    FaultKind.DENIED: Refusal(403, "UnauthorizedOperation"),
    FaultKind.ERROR: Refusal(500, "InternalError"),
    FaultKind.SILENT: Silence(),
    FaultKind.GARBAGE: Garbage(),
    FaultKind.HUGE: Refusal(400, "InvalidParameterValue", ECHOED),
}


class AwsAdapter(PatientAdapter):
    """Classic balancers, which is what a Service without annotations gets."""

    max_machines = 401
    fault_kinds = (*USUAL_FAULTS, FaultKind.HUGE)
    secrets = (SECRET,)
    retry_after = None  # AWS does not say when to come back
    sdk_modules = ("botocore",)
    annotations: Sequence[Mapping[str, str]] = (
        {"type": "nlb"},
        {"internal": "true"},
        {"scheme": "internal"},
        {"proxy-protocol": "*"},
        {"cross-zone-load-balancing-enabled": "true"},
        {"connection-draining-enabled": "true", "connection-draining-timeout": "60"},
        {"connection-idle-timeout": "90"},
        {"additional-resource-tags": "team=web,empty="},
        {"healthcheck-interval": "20", "healthcheck-healthy-threshold": "3"},
        {"healthcheck-protocol": "HTTP", "healthcheck-path": "/ready"},
        {"backend-protocol": "http"},
        {"subnets": f"private-{ZONES[0]}", "internal": "true"},
    )

    def __init__(self) -> None:
        self._running = ExitStack()
        self._ended: list[str] = []
        self.emulator: Emulator
        self.proxy: Proxy
        self.account: Account

    def start(self) -> None:
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
        directory = self._running.enter_context(tempfile.TemporaryDirectory())
        self.emulator = self._running.enter_context(Emulator(Path(directory)))
        self.proxy = self._running.enter_context(Proxy(self.emulator.url))
        self.account = Account.make(self.emulator, ZONES[:1])
        self.account.add_ipv6()
        self.emulator.keep()

    def stop(self) -> None:
        self._running.close()

    def reset(self) -> bytes:
        os.environ.update(CREDENTIALS, AWS_SECRET_ACCESS_KEY=SECRET)
        self.proxy.reset()
        self.emulator.reset()
        self._ended = []
        self.proxy.rewrite = self._with_blackholes
        return config_text(self.account, self.proxy.url, "CallTimeout = 10s").encode()

    def refuse_credentials(self) -> None:
        self.proxy.rule = lambda request: Refusal(401, "AuthFailure")

    def renew_credentials(self) -> None:
        self.clear_fault()
        os.environ["AWS_ACCESS_KEY_ID"] = "renewed"

    def is_write(self, operation: str, budget: str) -> bool:
        return not operation.startswith("Describe")

    def snapshot(self) -> object:
        """Everything that the provider could change, without what moto changes by itself."""
        ec2 = self.account.ec2
        instances = ec2.describe_instances()["Reservations"]
        checks = {i["InstanceId"]: i["SourceDestCheck"] for r in instances for i in r["Instances"]}
        groups = ec2.describe_security_groups()["SecurityGroups"]
        tables = ec2.describe_route_tables()["RouteTables"]
        return [checks, groups, tables, *self.account.classic_elbs(True), *self.account.nlbs(True)]

    def count_calls(self) -> int:
        return len(self.proxy.requests)

    def inject_fault(self, kind: FaultKind) -> None:
        self.proxy.rule = (
            throttling if kind is FaultKind.THROTTLED else lambda request: FAULTS[kind]
        )

    def clear_fault(self) -> None:
        self.proxy.rule = lambda request: None

    # Machines

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        """Machines without a public IP, which would change whenever one is stopped."""
        made = self.account.launch(len(names), SubnetId=self.account.private[ZONES[0]])
        for one in made[:5]:  # as nodes with routes are: the check of sources is off
            instance = {"InstanceId": one["InstanceId"]}
            self.account.ec2.modify_instance_attribute(**instance, SourceDestCheck={"Value": False})
        return [machine_of(one) for one in made]

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        marks = [{"ResourceType": "instance", "Tags": tag_list(TAGS[owner])}]
        return machine_of(self.account.launch(TagSpecifications=marks)[0])

    def stop_machine(self, machine: Machine) -> None:
        self.account.ec2.stop_instances(InstanceIds=[_instance_id(machine.provider_id)])

    def start_machine(self, machine: Machine) -> None:
        self.account.ec2.start_instances(InstanceIds=[_instance_id(machine.provider_id)])

    def terminate_machine(self, machine: Machine) -> None:
        self._ended.append(_instance_id(machine.provider_id))
        self.account.ec2.terminate_instances(InstanceIds=self._ended[-1:])

    def absent_provider_id(self) -> str:
        return f"aws:///{ZONES[0]}/i-0123456789abcdef0"

    # Balancers

    def list_balancers(self) -> Sequence[ObservedBalancer]:
        return [
            *map(self._seen_classic, self.account.classic_elbs()),
            *map(self._seen_nlb, self.account.nlbs()),
        ]

    def balancer_resources(self) -> Collection[str]:
        found = {one["LoadBalancerName"] for one in self.account.classic_elbs()}
        found |= {one["LoadBalancerArn"] for one in self.account.nlbs()}
        found |= {group["TargetGroupArn"] for group in self.account.target_groups()}
        for group in self.account.security_groups():
            found |= {group["GroupId"], *(str(rule) for rule in _rules(group))}
        return found

    def create_foreign_balancer(self, name: str, service: Service, owner: Owner) -> None:
        self.account.elb.create_load_balancer(
            LoadBalancerName=name,
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 30080}],
            Subnets=list(self.account.public.values()),
            SecurityGroups=[self.account.nodes_group],
            Tags=tag_list(tags_of(service, owner)),
        )

    def annotation_sets(self) -> Sequence[Mapping[str, str]]:
        return [{PREFIX + key: value for key, value in one.items()} for one in self.annotations]

    def annotation_keys(self) -> Collection[str]:
        return {PREFIX + name for names in SUPPORTED_ANNOTATIONS.values() for name in names}

    # Routes

    def list_routes(self) -> Sequence[ObservedRoute]:
        tables = self.account.ec2.describe_route_tables()["RouteTables"]
        return [
            ObservedRoute(route["DestinationCidrBlock"], self._provider_id(route["InstanceId"]))
            for table in tables
            for route in table["Routes"]
            if route.get("InstanceId")
        ]

    def create_foreign_route(self, cidr: str, machine: Machine, owner: Owner) -> None:
        """A route has no tags in AWS: its table tells whose it is."""
        if cidr == CIDR:
            raise Untestable("two owners meet in one route table only, where all is the cluster's")
        ec2 = self.account.ec2
        table = self.account.make_table()
        ec2.create_tags(Resources=[table], Tags=tag_list(TAGS[owner]))
        ec2.create_route(
            RouteTableId=table,
            DestinationCidrBlock=cidr,
            InstanceId=_instance_id(machine.provider_id),
        )

    # Volumes

    def create_volume(self, source: str) -> Disk:
        zone = ZONES[0]
        made = self.account.ec2.create_volume(AvailabilityZone=zone, Size=1)["VolumeId"]
        return Disk(_volume_spec(source, made), (zone,), REGION)

    def delete_volume(self, disk: Disk) -> None:
        handle = disk.spec.get("csi", {}).get("volumeHandle")
        volume_id = handle or disk.spec["awsElasticBlockStore"]["volumeID"].rpartition("/")[2]
        self.account.ec2.delete_volume(VolumeId=volume_id)

    def absent_volume(self, source: str) -> Json:
        return _volume_spec(source, "vol-0123456789abcdef0")

    # Looking

    def _with_blackholes(self, request: Request, answer: bytes) -> bytes:
        """Injected: moto leaves routes to terminated instances active."""
        if request.operation != "DescribeRouteTables":
            return answer
        for instance_id in self._ended:
            active = rf"(<instanceId>{instance_id}</instanceId>(?:(?!</item>).)*<state>)active"
            answer = re.sub(active.encode(), rb"\1blackhole", answer, flags=re.DOTALL)
        return answer

    def _seen_classic(self, one: Json) -> ObservedBalancer:
        listeners = [description["Listener"] for description in one["ListenerDescriptions"]]
        own = f"k8s-elb-{one['LoadBalancerName']}"
        rules = [
            r for g in self.account.security_groups() if g["GroupName"] == own for r in _rules(g)
        ]
        ranges = {source for protocol, *_, source, _ in rules if protocol == "tcp"}
        return ObservedBalancer(
            name=one["LoadBalancerName"],
            listeners=frozenset(
                ("TCP", one["LoadBalancerPort"], one["InstancePort"]) for one in listeners
            ),
            backends=frozenset(self._provider_id(i["InstanceId"]) for i in one["Instances"]),
            source_ranges=frozenset(ranges - {"0.0.0.0/0"}),
            health_check=_check(one["HealthCheck"]["Target"]) if one.get("HealthCheck") else None,
        )

    def _seen_nlb(self, one: Json) -> ObservedBalancer:
        groups = one["groups"]
        listeners: set[tuple[str, int, int]] = set()
        for listener in one["listeners"]:
            group = groups[listener["DefaultActions"][0]["TargetGroupArn"]]
            for protocol in listener["Protocol"].split("_"):
                listeners.add((protocol, listener["Port"], group["Port"]))
        targets = {frozenset(group["targets"]) for group in groups.values()}
        assert len(targets) <= 1, "all target groups have the same targets"
        note = f"kubernetes.io/rule/nlb/client={one['LoadBalancerName']}"
        rules = [rule for group in self.account.security_groups() for rule in _rules(group)]
        ranges = {source for *_, source, said in rules if said == note}
        checks = [
            f"{g['HealthCheckProtocol']}:{g['HealthCheckPort']}{g.get('HealthCheckPath', '')}"
            for g in groups.values()
        ]
        return ObservedBalancer(
            name=one["LoadBalancerName"],
            listeners=frozenset(listeners),
            backends=frozenset(self._provider_id(one) for found in targets for one in found),
            source_ranges=frozenset(ranges - {"0.0.0.0/0"}),
            health_check=_check(checks[0]) if checks else None,
            families=frozenset(
                ("IPv4", "IPv6") if one["IpAddressType"] == "dualstack" else ("IPv4",)
            ),
        )

    def _provider_id(self, instance_id: str) -> str:
        return f"aws:///{ZONES[0]}/{instance_id}"


class NetworkAdapter(AwsAdapter):
    """The same with network load balancers wherever a Service does not say what it wants."""

    annotations: Sequence[Mapping[str, str]] = (
        {"type": "classic"},
        {"internal": "true"},
        {"target-group-attributes": "proxy_protocol_v2.enabled=true"},
        {"cross-zone-load-balancing-enabled": "true"},
        {"access-log-enabled": "true", "access-log-s3-bucket-name": "logs"},
        {"attributes": "deletion_protection.enabled=true"},
        {"target-group-attributes": "deregistration_delay.timeout_seconds=60"},
        {"additional-resource-tags": "team=web"},
        {"healthcheck-protocol": "HTTP", "healthcheck-path": "/ready"},
        {"healthcheck-interval": "10"},
    )

    def reset(self) -> bytes:
        return super().reset().replace(b"[Global]", b"[Global]\nLoadBalancerType = nlb")

    def create_foreign_balancer(self, name: str, service: Service, owner: Owner) -> None:
        self.account.elbv2.create_load_balancer(
            Name=name,
            Type="network",
            Subnets=list(self.account.public.values()),
            Tags=tag_list(tags_of(service, owner)),
        )
        tags = [{"ResourceType": "elastic-ip", "Tags": tag_list(TAGS[owner])}]
        if owner is not Owner.NOBODY:
            self.account.ec2.allocate_address(Domain="vpc", TagSpecifications=tags)

    def references_to(self, name: str) -> Sequence[tuple[Mapping[str, str], Json]]:
        addresses = self.account.ec2.describe_addresses()["Addresses"]
        if not addresses:
            raise Untestable("an address without a mark is free for any Service")
        return [({f"{PREFIX}eip-allocations": one["AllocationId"]}, {}) for one in addresses]


def tags_of(service: Service, owner: Owner) -> dict[str, str]:
    """The tags of a load balancer that is not the Service's, but may be that of its copy."""
    of_copy = {SERVICE_TAG: service.key, SERVICE_UID_TAG: service.uid}
    return TAGS[owner] | (of_copy if owner is Owner.OTHER_CLUSTER else {})


def machine_of(instance: Json) -> Machine:
    """What the cloud's own record says of an instance."""
    name, zone = instance["PrivateDnsName"], instance["Placement"]["AvailabilityZone"]
    pairs = (
        *(
            (AddressType.INTERNAL_IP, private["PrivateIpAddress"])
            for interface in instance["NetworkInterfaces"]
            for private in interface["PrivateIpAddresses"]
        ),
        (AddressType.EXTERNAL_IP, instance.get("PublicIpAddress")),
        (AddressType.INTERNAL_DNS, name),
        (AddressType.HOSTNAME, name),
        (AddressType.EXTERNAL_DNS, instance.get("PublicDnsName")),
    )
    addresses = tuple(NodeAddress(kind, value) for kind, value in pairs if value)
    provider_id = f"aws:///{zone}/{instance['InstanceId']}"
    aliases = instance["InstanceId"], f"aws:///{instance['InstanceId']}"
    return Machine(name, provider_id, instance["InstanceType"], zone, REGION, addresses, aliases)


def _instance_id(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]


def _check(target: str) -> HealthCheck | None:
    protocol, _, rest = target.partition(":")
    port, _, path = rest.partition("/")
    return HealthCheck(int(port), f"/{path}") if protocol == "HTTP" else None


def _rules(group: Json) -> Iterator[tuple[Any, ...]]:
    for permission in group["IpPermissions"]:
        ports = permission.get("FromPort"), permission.get("ToPort")
        for one in (*permission["IpRanges"], *permission["UserIdGroupPairs"]):
            source = one.get("CidrIp") or one.get("GroupId")
            yield permission["IpProtocol"], *ports, source, one.get("Description", "")


def _volume_spec(source: str, volume_id: str) -> Json:
    if source == "awsElasticBlockStore":
        return {source: {"volumeID": f"aws://{ZONES[0]}/{volume_id}"}}
    return {"csi": {"driver": source, "volumeHandle": volume_id}}
