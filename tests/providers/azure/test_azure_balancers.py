"""Load balancers in the lab: rows AZ22 to AZ53, AZ58."""

import asyncio
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from hashlib import md5
from typing import Any, cast

import pytest

from ccm.cloud.dry_run import ReadingGate, WouldWrite
from ccm.cloud.gate import WorkerGate, invoke
from ccm.cloud.testkit.harness import port, service
from ccm.errors import CloudError, NoRoom, Refused, RetryAfter
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb.annotations import PREFIX
from ccm.providers.azure.lb.members import BY_ADDRESS_ONLY, MEMBERS, Members, PoolMembers
from tests.labs.azure.lab import GROUP, NSG, OTHER_GROUP, SUBNET, Lab, path_of
from tests.providers.azure.conftest import Started, host

LOCAL: dict[str, Any] = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
CLUSTER = "kit"
RANGES: dict[str, Any] = {"loadBalancerSourceRanges": ["192.0.2.0/24"]}
INTERNAL = {"load-balancer-internal": "true"}
OTHER_PORT: dict[str, Any] = {"ports": [port(443, node_port=30443)]}
BY_HAND: Json = {
    "sku": {"name": "Standard"},
    "properties": {"publicIPAllocationMethod": "Static"},
}
OFF = {"disable-load-balancer-floating-ip": "true"}
DENY = {"deny-all-except-load-balancer-source-ranges": "true"}


def web(name: str = "web", annotations: dict[str, str] | None = None, **spec: Any) -> Service:
    named = {key if "/" in key else PREFIX + key: one for key, one in (annotations or {}).items()}
    return service(name, named, **spec)


def parts(lab: Lab, name: str = CLUSTER) -> dict[str, dict[str, Json]]:
    """The parts of a load balancer by kind and name."""
    properties = lab.get("loadBalancers", name)["properties"]
    return {
        kind: {one["name"]: one["properties"] for one in listed}
        for kind, listed in properties.items()
        if isinstance(listed, list)
    }


def rules(lab: Lab) -> dict[str, Json]:
    found = lab.get("networkSecurityGroups", NSG)["properties"]["securityRules"]
    return {one["name"]: one["properties"] for one in found}


def addresses(lab: Lab) -> dict[str, Json]:
    return {one["name"]: one for one in lab.objects("publicIPAddresses").values()}


def destinations_of(rule: Json) -> set[str]:
    return {*rule.get("destinationAddressPrefixes", ()), rule.get("destinationAddressPrefix")} - {
        None
    }


def joined(lab: Lab, name: str = CLUSTER) -> int:
    pool = f"{path_of('loadBalancers', name)}/backendAddressPools/{CLUSTER}".lower()
    return len(lab.state()["members"][pool])


def members(lab: Lab) -> set[str]:
    """The machines behind the load balancer, by interface or by address."""
    pool = lab.get("loadBalancers", CLUSTER)["properties"]["backendAddressPools"][0]
    listed = pool["properties"].get("loadBalancerBackendAddresses", ())
    interfaces = lab.state()["members"].get(pool["id"].lower(), ())
    by_interface = {one["id"].split("/")[8].removesuffix("-nic") for one in interfaces}
    return by_interface | {one["name"] for one in listed}


async def delete(cloud: Started, asked: Service) -> None:
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.delete, asked)


async def test_a_service_gets_parts_of_upstreams_names(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ22, AZ44, AZ53: what upstream makes, field by field; it stays without a write."""
    asked = web()
    base = asked.default_balancer_name
    made = await cloud.ensure(asked, node)
    found = parts(lab)
    rule = found["loadBalancingRules"][f"{base}-TCP-80"]
    assert {key: rule[key] for key in ("backendPort", "enableFloatingIP", "enableTcpReset")} == {
        "backendPort": 80,
        "enableFloatingIP": True,
        "enableTcpReset": True,
    }
    assert (rule["idleTimeoutInMinutes"], rule["loadDistribution"]) == (4, "Default")
    probe = found["probes"][f"{base}-TCP-80"]
    assert {key: probe[key] for key in ("protocol", "port", "probeThreshold")} == {
        "protocol": "Tcp",
        "port": 30080,
        "probeThreshold": 2,
    }
    address = addresses(lab)[f"kit-{base}"]
    assert address["tags"] == {
        "k8s-azure-cluster-name": CLUSTER,
        "k8s-azure-service": "default/web",
    }
    assert address["zones"] == ["1", "2", "3"]
    ((name, admitted),) = rules(lab).items()
    hashed = md5(b"Tcp_Internet_80", usedforsecurity=False).hexdigest()
    assert name == f"k8s-azure-lb_allow_IPv4_{hashed}"
    ip = address["properties"]["ipAddress"]
    assert (admitted["destinationAddressPrefix"], admitted["priority"]) == (ip, 500)
    assert admitted["destinationPortRanges"] == ["80"]
    assert [one.ip for one in made.ingress] == [ip]
    lab.forget_calls()
    again = await Started(lab.config()).start()
    await again.ensure(asked, node)
    assert lab.writes() == []


async def test_many_services_share_one_load_balancer(lab: Lab, node: Node) -> None:
    """AZ23, AZ25, AZ58: in parallel none is lost; what someone else has in it is kept."""
    nodes = [node, *(host(lab.add_machine(f"more-{number}")) for number in range(49))]
    by_hand = {
        "name": "by-hand",
        "properties": {"protocol": "Tcp", "port": 1, "intervalInSeconds": 5},
    }
    body = {"sku": {"name": "Standard"}, "properties": {"probes": [by_hand]}}
    lab.put("loadBalancers", CLUSTER, body)
    cloud = await Started(lab.config(loadBalancerBackendPoolConfigurationType="nodeIP")).start()
    lab.forget_calls()
    services = [web(f"web-{number}", ports=[port(80 + number)]) for number in range(5)]
    await asyncio.gather(*(cloud.ensure(one, *nodes) for one in services))
    assert len(lab.calls()) <= 60
    found = parts(lab)
    assert len(found["frontendIPConfigurations"]) == 5
    assert "by-hand" in found["probes"]
    (pool,) = found["backendAddressPools"].values()
    assert len(pool["loadBalancerBackendAddresses"]) == 50
    lab.forget_calls()
    again = await Started(lab.config(loadBalancerBackendPoolConfigurationType="nodeIP")).start()
    await asyncio.gather(*(again.ensure(one, *nodes) for one in services))
    assert lab.writes() == []
    for one in services:
        await delete(cloud, one)
    assert not addresses(lab)
    assert not rules(lab)


async def test_members_by_interface_are_a_write_each(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ45, AZ48, AZ49: others stay, one that is gone stops nobody, control planes are out."""
    nodes = [node, *(host(lab.add_machine(f"more-{number}")) for number in range(3))]
    nodes[3].raw["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": ""}
    asked = web()
    await cloud.ensure(asked, *nodes)
    assert joined(lab) == 3
    lab.forget_calls()
    await cloud.ensure(asked, *nodes[1:])
    assert [one.split("/")[1] for one in lab.writes()] == ["networkInterfaces"]
    lab.fail("PUT .*node-1-nic", status=404, code="ResourceNotFound", message="gone")
    lab.fail("PUT .*more-2-nic", status=400, code="InterfaceBusy", message="it is busy")
    nodes[3].raw["metadata"]["labels"] = {}
    made = await cloud.ensure(asked, *nodes)
    assert made.lacking == "interface more-2-nic: PutInterface: 400 InterfaceBusy: it is busy"
    await cloud.ensure(asked, *nodes)
    assert joined(lab) == 4


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 403, "code": "RequestDisallowedByPolicy"},
        {"status": 409, "code": "ScopeLocked"},
        {"status": 429, "code": "RetryableError"},
        {"async": True, "code": "InternalServerError"},
    ],
    ids=lambda fault: str(fault["code"]),
)
async def test_an_interface_that_cannot_be_written_holds_up_no_service(
    lab: Lab, cloud: Started, node: Node, fault: Json
) -> None:
    """As that of a machine which an operator has locked: all others join, and clients come in."""
    nodes = [node, host(lab.add_machine("locked"))]
    lab.fail("PUT .*/locked-nic", 1_000, **fault)
    made = await cloud.ensure(web(), *nodes)
    assert made.lacking.startswith("interface locked-nic: PutInterface: ")
    assert made.ingress
    assert members(lab) == {"node-1"}
    assert len(rules(lab)) == 1
    assert cloud.load_balancers
    with pytest.raises(CloudError, match="interface locked-nic: PutInterface: "):
        await invoke(cloud.load_balancers.update_nodes, web(), nodes)
    lab.heal()
    await invoke(cloud.load_balancers.update_nodes, web(), nodes)
    assert members(lab) == {"node-1", "locked"}


async def test_an_interface_that_goes_before_it_is_written_is_not_missed(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its machine, after it was read by itself: Azure answers that its ETag is another."""
    put, other = AzureApi.put, host(lab.add_machine("other"))

    async def put_later(api: AzureApi, operation: str, path: str, *more: Any) -> Json:
        if path.endswith("/other-nic"):
            lab.delete_machine(path_of("virtualMachines", "other"))
            lab.delete("networkInterfaces", "other-nic")
        return await put(api, operation, path, *more)

    monkeypatch.setattr(AzureApi, "put", put_later)
    made = await cloud.ensure(web(), node, other)
    assert (made.lacking, members(lab)) == ("", {"node-1"})


async def test_a_dry_run_shows_that_several_interfaces_would_be_written(
    lab: Lab, cloud: Started, node: Node
) -> None:
    await cloud.ensure(web(), node)
    nodes, dry = [node, *(host(lab.add_machine(name)) for name in "ab")], Started(lab.config())
    dry._context = replace(dry._context, gate=ReadingGate(cast(WorkerGate, dry.gate)))
    await dry.start()
    assert dry.load_balancers
    with pytest.raises(WouldWrite, match="PutInterface"):
        await invoke(dry.load_balancers.ensure, web(), nodes)


@pytest.mark.parametrize("operation", ["ListInterfaces", "GetInterface"])
async def test_what_one_answer_lacks_of_an_interface_is_not_taken_from_it(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """It is written whole: it would leave the pools of all others."""
    await cloud.ensure(web("inner", {"load-balancer-internal": "true"}), node)
    kind = "list" if operation == "ListInterfaces" else "get"
    read = getattr(AzureApi, kind)

    async def read_less(api: AzureApi, asked: str, path: str, **query: str) -> Any:
        found = await read(api, asked, path, **query)
        for item in [*(found if kind == "list" else [found])] * (asked == operation):
            for record in item["properties"]["ipConfigurations"]:
                record["properties"].pop(MEMBERS)
        return found

    monkeypatch.setattr(AzureApi, kind, read_less)
    assert cloud.load_balancers
    with nullcontext() if kind == "list" else pytest.raises(RetryAfter, match="lacks parts"):
        await invoke(cloud.load_balancers.ensure, web(), [node])
    assert joined(lab, f"{CLUSTER}-internal") == 1
    assert joined(lab) == (kind == "list")


async def test_services_that_come_together_write_each_interface_once(
    lab: Lab, cloud: Started
) -> None:
    """AZ58: 50 Nodes would be 50 writes, and not 250."""
    nodes = [host(lab.add_machine(f"node-{number}")) for number in range(10)]
    lab.forget_calls()
    services = [web(f"web-{number}", ports=[port(80 + number)]) for number in range(5)]
    await asyncio.gather(*(cloud.ensure(one, *nodes) for one in services))
    assert lab.counted()["PUT networkInterfaces"] == 10
    assert joined(lab) == 10
    assert len(lab.calls()) <= 60 + 10


async def test_scale_sets_join_by_address(lab: Lab) -> None:
    """By interface it is refused, with the key that changes it."""
    lab.add_scale_set("pool", 2)
    ids = [f"{path_of('virtualMachineScaleSets', 'pool')}/virtualMachines/{one}" for one in (0, 1)]
    nodes = [host({"id": one}, f"pool00000{at}") for at, one in enumerate(ids)]
    cloud = await Started(lab.config(vmType="vmss")).start()
    with pytest.raises(Refused, match="loadBalancerBackendPoolConfigurationType"):
        await cloud.ensure(web(), *nodes)
    more = {"vmType": "vmss", "loadBalancerBackendPoolConfigurationType": "nodeIP"}
    cloud = await Started(lab.config(**more)).start()
    await cloud.ensure(web(), *nodes)
    (pool,) = parts(lab)["backendAddressPools"].values()
    assert [one["name"] for one in pool["loadBalancerBackendAddresses"]] == [
        "pool000000",
        "pool000001",
    ]


async def test_a_machine_of_a_scale_set_keeps_no_other_from_joining_by_interface(
    lab: Lab, node: Node
) -> None:
    """Any kubelet may name one of the network."""
    lab.add_scale_set("pool", 1)
    path = f"{path_of('virtualMachineScaleSets', 'pool')}/virtualMachines/0"
    odd = host({"id": path}, "pool000000")
    cloud = await Started(lab.config(vmType="vmss")).start()
    made = await cloud.ensure(web(), odd, node)
    assert made.warnings == (f"nodes pool000000 left out: {BY_ADDRESS_ONLY}",)
    assert joined(lab) == 1
    theirs = {"backendIPConfigurations": [{"id": f"{path}/networkInterfaces/nic"}]}
    pool = PoolMembers({"properties": theirs}, {}, 4)
    members = Members(cast(AzureApi, None), AzureConfig())
    assert members.are_right(pool, []), "what upstream has put there stays"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param({"status": 412, "code": "PreconditionFailed"}, None, id="changed meanwhile"),
        pytest.param({"drop": "after"}, CloudError, id="answer lost"),
        pytest.param({"async": True, "code": "InternalServerError"}, CloudError, id="failed late"),
        pytest.param({"async": True, "code": "Canceled"}, RetryAfter, id="canceled"),
        pytest.param({"async": True, "code": "PublicIPCountLimitReached"}, NoRoom, id="quota"),
        pytest.param(
            {"status": 409, "code": "AnotherOperationInProgress"}, RetryAfter, id="at work"
        ),
    ],
)
@pytest.mark.parametrize(
    "resource", ["loadBalancers", "publicIPAddresses", "networkSecurityGroups"]
)
async def test_a_write_that_fails_is_made_again_and_nothing_twice(
    lab: Lab,
    cloud: Started,
    node: Node,
    resource: str,
    fault: Json,
    kind: type[CloudError] | None,
) -> None:
    """AZ24, AZ26, AZ27, AZ28, AZ29."""
    assert cloud.load_balancers
    lab.fail(f"PUT .*{resource}", **fault)
    if kind is None:
        await invoke(cloud.load_balancers.ensure, web(), [node])
    else:
        with pytest.raises(kind):
            await invoke(cloud.load_balancers.ensure, web(), [node])
    lab.heal()
    await cloud.ensure(web(), node)
    assert (
        len(parts(lab)["frontendIPConfigurations"]) == len(addresses(lab)) == len(rules(lab)) == 1
    )


async def test_slow_operations_are_followed(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AZ29: another write meanwhile would be refused."""
    monkeypatch.setattr("ccm.providers.azure.api.POLL_INTERVAL", 0.01)
    lab.settings(delay=0.05)
    await asyncio.gather(*(cloud.ensure(web(f"web-{at}"), node) for at in range(3)))
    assert len(parts(lab)["frontendIPConfigurations"]) == 3
    assert not [error for error in cloud.gate.errors if isinstance(error, RetryAfter)]


async def test_an_internal_service_and_back(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ30, AZ31: in the other load balancer; what it had goes, in this order of safety."""
    inner = web(annotations={"load-balancer-internal": "true"})
    named = {"load-balancer-internal": "true", "load-balancer-internal-subnet": SUBNET}
    base = inner.default_balancer_name
    made = await cloud.ensure(inner, node)
    assert made.ingress[0].ip.startswith("10.224.")
    assert list(parts(lab, f"{CLUSTER}-internal")["frontendIPConfigurations"]) == [base]
    await cloud.ensure(web(annotations=named), node)
    found = parts(lab, f"{CLUSTER}-internal")
    assert list(found["frontendIPConfigurations"]) == [f"{base}-{SUBNET}"]
    assert list(found["loadBalancingRules"]) == [f"{base}-{SUBNET}-TCP-80"]
    await cloud.ensure(web(), node)
    assert list(lab.objects("loadBalancers")) == [path_of("loadBalancers", CLUSTER).lower()]
    assert len(addresses(lab)) == 1
    await cloud.ensure(inner, node)
    assert list(lab.objects("loadBalancers")) == [
        path_of("loadBalancers", f"{CLUSTER}-internal").lower()
    ]
    assert not addresses(lab)
    assert rules(lab) == {}


async def test_an_address_of_a_user_is_used_and_never_deleted(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ32: by name in another group, or by its IP."""
    body = {"sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}
    theirs = lab.put("publicIPAddresses", "theirs", body, OTHER_GROUP)
    asked = web(
        annotations={"pip-name": "theirs", "load-balancer-resource-group": OTHER_GROUP.upper()}
    )
    made = await cloud.ensure(asked, node)
    assert made.ingress[0].ip == theirs["properties"]["ipAddress"]
    await delete(cloud, asked)
    assert not lab.objects("loadBalancers")
    own = lab.put("publicIPAddresses", "own", body)
    by_ip = web(loadBalancerIP=own["properties"]["ipAddress"])
    await cloud.ensure(by_ip, node)
    await delete(cloud, by_ip)
    assert {*addresses(lab)} == {"theirs", "own"}
    with pytest.raises(Refused, match=f"no public address 192.0.2.1 in resource group {GROUP}"):
        await cloud.ensure(web(loadBalancerIP="192.0.2.1"), node)


async def test_two_services_share_an_address(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ33: as upstream, by the list in its tag; the last of them deletes it."""
    first = web("first")
    ip = (await cloud.ensure(first, node)).ingress[0].ip
    second = web("second", ports=[port(443, node_port=30443)], loadBalancerIP=ip)
    assert (await cloud.ensure(second, node)).ingress[0].ip == ip
    ((_, address),) = addresses(lab).items()
    assert address["tags"]["k8s-azure-service"] == "default/first,default/second"
    assert len(parts(lab)["frontendIPConfigurations"]) == 1
    assert len(rules(lab)) == 2
    await delete(cloud, first)
    assert list(parts(lab)["loadBalancingRules"]) == [f"{second.default_balancer_name}-TCP-443"]
    assert len(rules(lab)) == 1
    assert len(addresses(lab)) == 1
    await delete(cloud, second)
    assert not lab.objects("loadBalancers")
    assert not addresses(lab)


async def test_a_dns_label_is_its_services(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ34."""
    await cloud.ensure(web(annotations={"dns-label-name": "kit-web"}), node)
    ((_, address),) = addresses(lab).items()
    assert address["properties"]["dnsSettings"]["domainNameLabel"] == "kit-web"
    assert address["tags"]["k8s-azure-dns-label-service"] == "default/web"
    with pytest.raises(Refused, match="DnsRecordInUse"):
        await cloud.ensure(web("other", {"dns-label-name": "kit-web"}), node)
    await cloud.ensure(web(), node)
    record = addresses(lab)[f"kit-{web().default_balancer_name}"]
    assert not record["properties"].get("dnsSettings")
    assert "k8s-azure-dns-label-service" not in record["tags"]


CASES: list[Any] = [
    pytest.param(
        {}, {"ports": [port(53, "UDP", 30053), port(53, "TCP", 30053)]}, 2, {"Tcp"}, id="AZ35"
    ),
    pytest.param({}, LOCAL, 1, {"Http"}, id="AZ36"),
    pytest.param(
        {"load-balancer-internal": "true", "load-balancer-enable-high-availability-ports": "true"},
        {"ports": [port(80), port(443, node_port=30443)]},
        1,
        {"Tcp"},
        id="AZ40",
    ),
    pytest.param(
        {"service.beta.kubernetes.io/port_80_no_lb_rule": "true"}, {}, 0, set(), id="no-rule"
    ),
    pytest.param(
        {"service.beta.kubernetes.io/port_80_health-probe_protocol": "https"},
        {},
        1,
        {"Https"},
        id="probe",
    ),
]


@pytest.mark.parametrize(("annotations", "spec", "count", "probes"), CASES)
async def test_ports_and_probes(
    lab: Lab,
    cloud: Started,
    node: Node,
    annotations: dict[str, str],
    spec: dict[str, Any],
    count: int,
    probes: set[str],
) -> None:
    """AZ35, AZ36, AZ40."""
    await cloud.ensure(web(annotations=annotations, **spec), node)
    name = f"{CLUSTER}-internal" if annotations.get("load-balancer-internal") else CLUSTER
    found = parts(lab, name)
    assert len(found.get("loadBalancingRules", {})) == count
    assert {one["protocol"] for one in found.get("probes", {}).values()} == probes
    for one in found.get("loadBalancingRules", {}).values():
        if name != CLUSTER:
            assert (one["protocol"], one["frontendPort"], one["backendPort"]) == ("All", 0, 0)


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({"load-balancer-health-probe-interval": "3"}, "from 5 to"),
        (
            {
                "load-balancer-health-probe-interval": "30",
                "load-balancer-health-probe-num-of-probe": "5",
            },
            "5 probes every 30 s",
        ),
        ({"load-balancer-tcp-idle-timeout": "3"}, "from 4 to 100"),
        ({"load-balancer-tcp-idle-timeout": "101"}, "from 4 to 100"),
        ({"load-balancer-tcp-idle-timeout": "abc"}, "from 4 to 100"),
        ({"allowed-ip-ranges": "here"}, "not a list of networks"),
        ({"pls-create": "true"}, "private link"),
        ({"additional-public-ips": "x"}, "additional-public-ips"),
        ({"load-balancer-ipv4": "::1"}, "is not IPv4"),
    ],
)
async def test_what_azure_would_refuse_is_refused_before_a_call(
    lab: Lab, cloud: Started, node: Node, annotations: dict[str, str], why: str
) -> None:
    """AZ37, AZ38."""
    lab.forget_calls()
    with pytest.raises(Refused, match=why):
        await cloud.ensure(web(annotations=annotations), node)
    assert lab.calls() == []


async def test_without_floating_addresses_node_ports_are_reached(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ39: two Services with one port have different node ports; each opens its own."""
    off = {"disable-load-balancer-floating-ip": "true"}
    await cloud.ensure(web("one", off), node)
    await cloud.ensure(web("two", off, ports=[port(80, node_port=30081)]), node)
    assert {one["backendPort"] for one in parts(lab)["loadBalancingRules"].values()} == {
        30080,
        30081,
    }
    opened = {
        one["destinationPortRanges"][0]: one["destinationAddressPrefix"]
        for one in rules(lab).values()
    }
    assert opened.keys() == {"30080", "30081"}
    assert all(one.startswith("10.224.0.") for one in opened.values())
    with pytest.raises(Refused, match="RulesUseSameBackendPortProtocolAndPool"):
        await cloud.ensure(web("three", off), node)
    await delete(cloud, web("two", off, ports=[port(80, node_port=30081)]))
    assert len(rules(lab)) == 1


async def test_rules_of_machines_follow_them_and_go_when_the_address_floats_again(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Who left the pool that Services share is in no rule; another Service's rule stays."""
    off, other = {"disable-load-balancer-floating-ip": "true"}, port(80, node_port=30081)
    second = host(lab.add_machine("second"))
    await cloud.ensure(web("one", off), node, second)
    await cloud.ensure(web("two", off, ports=[other]), node, second)
    await cloud.ensure(web("one", off), node)
    opened = {
        tuple(one["destinationPortRanges"]): destinations_of(one) for one in rules(lab).values()
    }
    assert {ports: len(found) for ports, found in opened.items()} == {("30080",): 1, ("30081",): 1}
    made = await cloud.ensure(web("one"), node)
    opened = {
        tuple(one["destinationPortRanges"]): destinations_of(one) for one in rules(lab).values()
    }
    assert opened.keys() == {("80",), ("30081",)}
    assert opened["80",] == {made.ingress[0].ip}
    await cloud.ensure(web("two", ports=[other]), node)
    assert len(rules(lab)) == 1


@pytest.mark.parametrize("kind", ["nodeIPConfiguration", "nodeIP"])
async def test_machines_of_other_groups_leave_nothing_behind(lab: Lab, kind: str) -> None:
    """The last one of its group leaves the pool and the rules; so do all with the Service."""
    cloud = await Started(lab.config(loadBalancerBackendPoolConfigurationType=kind)).start()
    off, node = {"disable-load-balancer-floating-ip": "true"}, host(lab.add_machine("near"))
    far, third = (host(lab.add_machine(name, OTHER_GROUP)) for name in ("far", "third"))
    asked, floating = web("one", off), web("two", ports=[port(81)])
    await cloud.ensure(asked, node, far)
    await cloud.ensure(floating, node, far)
    assert members(lab) == {"near", "far"}
    assert cloud.load_balancers
    for one in (floating, asked):
        await invoke(cloud.load_balancers.update_nodes, one, [node])
    assert members(lab) == {"near"}
    opened = {tuple(one["destinationPortRanges"]): one for one in rules(lab).values()}
    assert len(destinations_of(opened["30080",])) == 1
    await cloud.ensure(asked, node, far, third)
    lab.delete_machine(path_of("virtualMachines", "far", OTHER_GROUP))
    lab.delete_machine(path_of("virtualMachines", "third", OTHER_GROUP))
    await delete(cloud, asked)
    assert len(rules(lab)) == 1
    await delete(cloud, floating)
    assert not rules(lab)


async def test_a_frontend_in_another_subnet_has_the_zones_of_a_new_one(
    lab: Lab, cloud: Started, node: Node
) -> None:
    inner = {"load-balancer-internal": "true"}
    await cloud.ensure(web(annotations=inner), node)
    await cloud.ensure(web(annotations={**inner, "load-balancer-internal-subnet": SUBNET}), node)
    (frontend,) = lab.get("loadBalancers", f"{CLUSTER}-internal")["properties"][
        "frontendIPConfigurations"
    ]
    assert sorted(frontend["zones"]) == ["1", "2", "3"]


async def test_sources_are_rules_that_services_share(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ41, AZ43: and what nobody uses goes."""
    ranges: dict[str, Any] = {"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"]}
    tagged = {"allowed-service-tags": "AzureCloud,Storage"}
    deny = {"deny-all-except-load-balancer-source-ranges": "true"}
    await cloud.ensure(web("one", **ranges), node)
    await cloud.ensure(web("two", deny, **ranges), node)
    allowed = [one for one in rules(lab).values() if one["access"] == "Allow"]
    assert [len(one["destinationAddressPrefixes"]) for one in allowed] == [2]
    (denied,) = [one for one in rules(lab).values() if one["access"] == "Deny"]
    assert denied["priority"] == 4095
    await cloud.ensure(web("one", tagged), node)
    await cloud.ensure(web("two"), node)
    sources = {one["sourceAddressPrefix"] for one in rules(lab).values()}
    assert sources == {"AzureCloud", "Storage", "Internet"}


async def test_addresses_of_someone_elses_load_balancer_are_let_in(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """They are published, and go with the Service."""
    asked = web(annotations={"additional-public-ips": "198.51.100.7"})
    made = await cloud.ensure(asked, node)
    assert made.ingress[-1].ip == "198.51.100.7"
    ((_, admitted),) = rules(lab).items()
    assert "198.51.100.7" in admitted["destinationAddressPrefixes"]
    await delete(cloud, asked)
    assert rules(lab) == {}


async def test_a_priority_taken_by_hand_is_left_out(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ42: and the rule by hand is kept; when all are taken, it is said."""
    by_hand = {
        "name": "by-hand",
        "properties": {
            "priority": 500, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
            "sourceAddressPrefix": "*", "sourcePortRange": "*",
            "destinationAddressPrefix": "*", "destinationPortRange": "22",
        },
    }  # fmt: skip
    lab.put("networkSecurityGroups", NSG, {"properties": {"securityRules": [by_hand]}})
    await cloud.ensure(web(), node)
    assert sorted(one["priority"] for one in rules(lab).values()) == [500, 501]
    await delete(cloud, web())
    assert list(rules(lab)) == ["by-hand"]


@pytest.mark.parametrize("lacks", ["80", "443"])
async def test_a_rule_that_an_answer_has_without_its_destinations_keeps_them(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """It would be written for the Service that changes alone, or go: others' clients as well."""
    await cloud.ensure(web("one"), node)
    await cloud.ensure(web("two", ports=[port(443, node_port=30443)]), node)
    before, read, answers = rules(lab), AzureApi.get, [lacks]

    async def get_less(api: AzureApi, operation: str, path: str, **query: str) -> Json:
        found = await read(api, operation, path, **query)
        if operation == "GetSecurityGroup" and answers:
            ports = [answers.pop()]
            for rule in found["properties"]["securityRules"]:
                if rule["properties"]["destinationPortRanges"] == ports:
                    del rule["properties"]["destinationAddressPrefix"]
        return found

    monkeypatch.setattr(AzureApi, "get", get_less)
    await cloud.ensure(web("three"), node)
    assert not answers
    after = {name: destinations_of(rule) for name, rule in rules(lab).items()}
    assert after.keys() == before.keys()
    assert all(destinations_of(rule) <= after[name] for name, rule in before.items())


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_service_that_goes_leaves_no_rule_that_an_answer_lacked(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """Nothing would look for it later."""
    await cloud.ensure(web("one"), node)
    if not is_first:
        await cloud.ensure(web("two", ports=[port(443, node_port=30443)]), node)
    before, read = rules(lab), AzureApi.get
    answers: list[list[Json]] = [[]]

    async def get_less(api: AzureApi, operation: str, path: str, **query: str) -> Json:
        found = await read(api, operation, path, **query)
        if operation == "GetSecurityGroup" and answers:
            found["properties"]["securityRules"] = answers.pop()
        return found

    monkeypatch.setattr(AzureApi, "get", get_less)
    await delete(cloud, web("one"))
    assert not answers
    assert len(rules(lab)) == len(before) - 1


async def test_a_rule_that_leads_to_groups_stays_and_stops_no_service(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A person's, in a form that controllers do not write, by a name as theirs are."""
    group = {"id": path_of("applicationSecurityGroups", "theirs")}
    body = {
        "priority": 600, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
        "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationPortRange": "22",
        "destinationApplicationSecurityGroups": [group],
    }  # fmt: skip
    rule = {"name": "k8s-azure-lb_by-hand", "properties": body}
    lab.put("networkSecurityGroups", NSG, {"properties": {"securityRules": [rule]}})
    await cloud.ensure(web(), node)
    assert len(rules(lab)) == 2
    await delete(cloud, web())
    assert list(rules(lab)) == ["k8s-azure-lb_by-hand"]


async def test_a_security_group_that_is_missing_is_warned_of(lab: Lab, node: Node) -> None:
    """AZ44."""
    cloud = await Started(lab.config(securityGroupName="none")).start()
    made: Balancer = await cloud.ensure(web(), node)
    assert made.warnings == ("security group none is missing: no client is let in",)


async def test_a_security_group_that_one_answer_hides_lets_clients_in(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Else they were kept out for half an hour, or what was open stayed so for good."""
    lab.fail(f"GET .*networkSecurityGroups/{NSG}", status=404, code="ResourceNotFound")
    made: Balancer = await cloud.ensure(web(), node)
    assert (made.warnings, len(rules(lab))) == ((), 1)
    lab.fail(f"GET .*networkSecurityGroups/{NSG}", status=404, code="ResourceNotFound")
    await delete(cloud, web())
    assert not rules(lab)


async def test_an_interface_of_another_load_balancer_is_named(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ46, AZ52: two clusters in one group share nothing but what Azure lets them."""
    other = await Started(lab.config(), cluster_name="other").start()
    await other.ensure(web(), node)
    with pytest.raises(Refused, match="node-1-nic uses more than one load balancer"):
        await cloud.ensure(web(), node)
    await delete(cloud, web())
    assert list(lab.objects("loadBalancers")) == [path_of("loadBalancers", "other").lower()]
    assert list(addresses(lab)) == [f"other-{web().default_balancer_name}"]


async def test_rules_of_another_clusters_machines_are_its_own(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ52: two clusters in one group, with one security group and addresses that do not float."""
    off, theirs = {"disable-load-balancer-floating-ip": "true"}, host(lab.add_machine("theirs"))
    other = await Started(lab.config(), cluster_name="other").start()
    await other.ensure(web("other", off, ports=[port(80, node_port=30081)]), theirs)
    (before,) = rules(lab).values()
    asked = web("one", off)
    await cloud.ensure(asked, node)
    await cloud.ensure(web("two", ports=[port(81)]), node)
    await delete(cloud, asked)
    await delete(cloud, web("two", ports=[port(81)]))
    assert list(rules(lab).values()) == [before]


async def test_what_is_in_use_is_deleted_later(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ50: the load balancer goes with its last Service; 404 is success."""
    await cloud.ensure(web("one"), node)
    await cloud.ensure(web("two"), node)
    await delete(cloud, web("one"))
    assert len(parts(lab)["frontendIPConfigurations"]) == 1
    lab.fail("DELETE .*publicIPAddresses", status=400, code="PublicIPAddressCannotBeDeleted")
    with pytest.raises(RetryAfter):
        await delete(cloud, web("two"))
    await delete(cloud, web("two"))
    await delete(cloud, web("two"))
    assert not lab.objects("loadBalancers")
    assert not addresses(lab)


async def test_a_basic_load_balancer_is_left_alone(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ51."""
    lab.put("loadBalancers", CLUSTER, {"sku": {"name": "Basic"}, "properties": {}})
    with pytest.raises(Refused, match="only standard ones"):
        await cloud.ensure(web(), node)
    assert lab.get("loadBalancers", CLUSTER)["sku"]["name"] == "Basic"


async def test_outbound_rules_keep_their_frontend(lab: Lab, cloud: Started, node: Node) -> None:
    """As configured by hand: for traffic that goes out through a Service's address."""
    await cloud.ensure(web(), node)
    balancer = lab.get("loadBalancers", CLUSTER)
    frontend = balancer["properties"]["frontendIPConfigurations"][0]["id"]
    pool = balancer["properties"]["backendAddressPools"][0]["id"]
    rule = {
        "name": "out",
        "properties": {
            "protocol": "All",
            "frontendIPConfigurations": [{"id": frontend}],
            "backendAddressPool": {"id": pool},
        },
    }
    lab.call(
        "PUT",
        f"{balancer['id']}?api-version=2025-05-01",
        balancer | {"properties": balancer["properties"] | {"outboundRules": [rule]}},
    )
    with pytest.raises(RetryAfter):  # its address is in use
        await delete(cloud, web())
    found = parts(lab)
    assert not found.get("loadBalancingRules")
    assert len(found["frontendIPConfigurations"]) == len(found["outboundRules"]) == 1


async def test_another_address_takes_the_place_of_the_services_own(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """And the one that was made for it is deleted."""
    body = {"sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}
    lab.put("publicIPAddresses", "by-hand", body)
    await cloud.ensure(web(), node)
    made = await cloud.ensure(web(annotations={"pip-name": "by-hand"}), node)
    (left,) = addresses(lab).values()
    assert [one.ip for one in made.ingress] == [left["properties"]["ipAddress"]]
    assert left["name"] == "by-hand"


@pytest.mark.parametrize("mixed_up", ["id", "tags"])
async def test_addresses_that_one_list_mixes_up_have_no_other_one_deleted(
    lab: Lab, cloud: Started, node: Node, mixed_up: str
) -> None:
    """A person's, which nothing uses at the moment, went with a Service."""
    body = {"sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}
    lab.put("publicIPAddresses", "by-hand", body)
    await cloud.ensure(web(), node)
    by_hand = addresses(lab)["by-hand"]

    def mix_up(answer: Any) -> Any:
        listed = answer[0].get("value") or [{}]
        if len(listed) == 2 and "/publicIPAddresses/" in listed[0].get("id", ""):
            first, second = ({**one} for one in listed)
            first[mixed_up], second[mixed_up] = second.get(mixed_up), first.get(mixed_up)
            return {**answer[0], "value": [first, second]}, *answer[1:]
        return answer

    cloud.gate.spoil = mix_up
    with pytest.raises(CloudError, match="is not the Service's own"):
        await delete(cloud, web())
    assert addresses(lab)["by-hand"] == by_hand
    cloud.gate.spoil = None
    await delete(cloud, web())
    assert addresses(lab) == {"by-hand": by_hand}


@pytest.mark.parametrize("kind", ["nodeIPConfiguration", "nodeIP"])
@pytest.mark.parametrize(
    ("listed", "mixed_up"),
    [
        ("networkInterfaces", "id"),
        ("networkInterfaces", "properties"),
        ("networkInterfaces", "addresses"),
        ("virtualMachines", "id"),
        ("virtualMachines", "properties"),
    ],
)
async def test_what_one_list_mixes_up_takes_no_node_out_of_a_pool(
    lab: Lab, kind: str, listed: str, mixed_up: str
) -> None:
    """A machine that is no Node's took its place until the next comparison, half an hour later."""
    cloud = await Started(lab.config(loadBalancerBackendPoolConfigurationType=kind)).start()
    nodes, left = [host(lab.add_machine(f"node-{item}")) for item in (1, 2)], [1]
    lab.add_machine("other")
    await cloud.ensure(web(), *nodes)
    before = members(lab)
    assert len(before) == 2

    def mix_up(answer: Any) -> Any:
        records = deepcopy(answer[0].get("value")) or [{}]
        if not left or len(records) < 3 or f"/{listed}/" not in records[0].get("id", ""):
            return answer
        left.pop()
        first, second = records[0], records[-1]
        if mixed_up == "addresses":
            first, second = (one["properties"]["ipConfigurations"][0] for one in (first, second))
        key = "properties" if mixed_up == "addresses" else mixed_up
        first[key], second[key] = second[key], first[key]
        return {**answer[0], "value": records}, *answer[1:]

    cloud.gate.spoil = mix_up
    lab.forget_calls()
    await cloud.ensure(web(), *nodes)
    assert not left
    assert lab.writes() == []
    assert members(lab) == before
    await cloud.ensure(web(), nodes[0])
    assert len(members(lab)) == 1
