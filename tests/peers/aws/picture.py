"""What can be seen of an account, by path, with every field that a controller may write."""

from collections.abc import Iterable, Sequence

from ccm.model.objects import Json
from tests.peers.aws.services import CASES
from tests.peers.world import Seen
from tests.providers.aws.world import Account


def seen(account: Account, instances: dict[str, Json]) -> Seen:
    """Of an account; `instances` by shape."""
    for shape, machine in machines(account, instances).items():
        yield f"node {shape} source check", machine.get("SourceDestCheck")
    yield from _routes(account, list(instances))
    for part in (_classic, _networks, _groups):
        yield from part(account)


def machines(account: Account, instances: dict[str, Json]) -> dict[str, Json]:
    """The instances as they are now, by shape."""
    pages = account.ec2.describe_instances()["Reservations"]
    found = {one["InstanceId"]: one for page in pages for one in page["Instances"]}
    return {shape: found[one["InstanceId"]] for shape, one in instances.items()}


def roles(account: Account, instances: dict[str, Json]) -> dict[str, str]:
    """What to call IDs that differ from run to run."""
    found = {account.table: "routes", account.nodes_group: "nodes", account.vpc: "vpc"}
    for shape, machine in machines(account, instances).items():
        found[machine["InstanceId"]] = shape
        for interface in machine.get("NetworkInterfaces", ()):
            index = interface["Attachment"]["DeviceIndex"]
            found[interface["NetworkInterfaceId"]] = f"{shape}-interface-{index}"
            if index:  # moto chooses its address by chance
                found[interface["PrivateIpAddress"]] = f"{shape}-address"
        for key in ("PublicDnsName", "PublicIpAddress"):
            if instances[shape].get(key):
                found[instances[shape][key]] = f"{shape}-{key}"
    for group in account.security_groups():
        found.setdefault(group["GroupId"], group["GroupName"])
    for one in account.target_groups():
        found[one["TargetGroupName"]] = f"targets-{CASES.of_node_port(one['Port'])}"
    return found


def _routes(account: Account, shapes: Sequence[str]) -> Seen:
    ids = [account.table]
    (table,) = account.ec2.describe_route_tables(RouteTableIds=ids)["RouteTables"]
    for route in table["Routes"]:
        cidr = route["DestinationCidrBlock"]
        if cidr.startswith("10.244."):
            yield f"route {shapes[int(cidr.split('.')[2])]}", _next_hop(route)


def _next_hop(route: Json) -> list[str]:
    return [route.get("InstanceId") or route.get("NetworkInterfaceId", ""), route["State"]]


def _classic(account: Account) -> Seen:
    for one in account.classic_elbs(is_deep=True):
        at = f"classic {one['LoadBalancerName']}"
        yield f"{at} scheme", one["Scheme"]
        yield f"{at} subnets", set(one["Subnets"])
        yield f"{at} groups", set(one["SecurityGroups"])
        yield f"{at} instances", {each["InstanceId"] for each in one["Instances"]}
        yield f"{at} health check", one["HealthCheck"]
        for described in one["ListenerDescriptions"]:
            listener = described["Listener"]
            port = f"{at} listener {listener['LoadBalancerPort']}"
            for key in ("Protocol", "InstanceProtocol", "SSLCertificateId"):
                yield f"{port} {key}", listener.get(key)
            yield f"{port} node port", CASES.of_node_port(listener["InstancePort"])
            yield f"{port} policies", described["PolicyNames"]
        for backend in one["BackendServerDescriptions"]:
            port = CASES.of_node_port(backend["InstancePort"])
            yield f"{at} backend {port} policies", backend["PolicyNames"]
        one["attributes"].pop("AdditionalAttributes", None)  # moto's grow with each change
        for key, value in one["attributes"].items():
            yield f"{at} attribute {key}", value
        for described in one["tags"]:
            yield from _tags(at, described["Tags"])


def _networks(account: Account) -> Seen:
    elbv2, groups = account.elbv2, account.target_groups()
    balancers = elbv2.describe_load_balancers()["LoadBalancers"]
    roles = {one["TargetGroupArn"]: CASES.of_node_port(one["Port"]) for one in groups}
    tags = _tags_by_arn(account, [*(one["LoadBalancerArn"] for one in balancers), *roles])
    for one in balancers:
        arn, at = one["LoadBalancerArn"], f"network {one['LoadBalancerName']}"
        yield f"{at} scheme", one.get("Scheme") or "internet-facing"  # AWS's default, not moto's
        yield f"{at} subnets", {zone["SubnetId"] for zone in one["AvailabilityZones"]}
        yield f"{at} groups", set(one.get("SecurityGroups", ()))
        yield f"{at} address type", one["IpAddressType"]
        listed = elbv2.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]
        yield from ((f"{at} attribute {each['Key']}", each["Value"]) for each in listed)
        yield from _tags(at, tags[arn])
        for listener in elbv2.describe_listeners(LoadBalancerArn=arn)["Listeners"]:
            port = f"{at} listener {listener['Port']}"
            for key in ("Protocol", "Certificates", "SslPolicy", "AlpnPolicy"):
                yield f"{port} {key}", listener.get(key)
            yield f"{port} forwards to", roles[listener["DefaultActions"][0]["TargetGroupArn"]]
    for group in groups:
        at = f"targets {roles[group['TargetGroupArn']]}"
        yield from _tags(at, tags[group["TargetGroupArn"]])
        yield from _target_group(account, group, at)


def _target_group(account: Account, group: Json, at: str) -> Seen:
    elbv2, arn = account.elbv2, group["TargetGroupArn"]
    for key, value in group.items():
        if key.startswith(("Health", "Unhealthy", "Protocol", "TargetType", "Matcher")):
            yield f"{at} {key}", value
    listed = elbv2.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
    targets = [each["Target"] for each in listed if each["TargetHealth"]["State"] != "draining"]
    yield f"{at} members", {each["Id"] for each in targets}
    yield f"{at} members' ports", {CASES.of_node_port(each["Port"]) for each in targets}
    answer = elbv2.describe_target_group_attributes(TargetGroupArn=arn)
    yield from ((f"{at} attribute {each['Key']}", each["Value"]) for each in answer["Attributes"])


def _tags_by_arn(account: Account, arns: Sequence[str]) -> dict[str, list[Json]]:
    """Those of load balancers and target groups, which AWS tells for 20 at a time."""
    pages = (arns[first : first + 20] for first in range(0, len(arns), 20))
    answers = (account.elbv2.describe_tags(ResourceArns=page) for page in pages)
    return {
        one["ResourceArn"]: one["Tags"] for answer in answers for one in answer["TagDescriptions"]
    }


def _groups(account: Account) -> Seen:
    for group in account.security_groups():
        at = f"group {group['GroupName']}"
        yield f"{at} description", group["Description"]
        yield from _tags(at, group.get("Tags", ()))
        for permission in group["IpPermissions"]:
            yield from _rules(at, permission)


def _rules(at: str, permission: Json) -> Seen:
    protocol, first = permission["IpProtocol"], permission.get("FromPort")
    port = str(first or "all")
    if protocol in ("tcp", "udp"):
        port = CASES.of_node_port(int(port))
    at = f"{at} rule {protocol} {port} from"
    for kind, key in (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6")):
        for each in permission.get(kind, ()):
            yield f"{at} {each[key]}", each.get("Description", "")
    for each in permission["UserIdGroupPairs"]:
        yield f"{at} {each['GroupId']}", each.get("Description", "")


def _tags(at: str, tags: Iterable[Json]) -> Seen:
    yield from ((f"{at} tag {tag['Key']}", tag["Value"]) for tag in tags)
