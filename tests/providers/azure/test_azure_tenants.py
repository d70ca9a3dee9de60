"""What tenants write in their Services harms no other Service."""

import asyncio
import time
from collections.abc import Awaitable
from functools import partial
from itertools import count
from typing import Any, cast

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import port, service
from ccm.cloud.testkit.test_untrusted import CPU_SECONDS
from ccm.errors import CloudError, NoRoom, Refused, RetryAfter, TakenByAnother
from ccm.model.objects import Json, Node
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb.annotations import PREFIX
from ccm.providers.azure.lb.request import MOST_ADDITIONAL, read_request
from ccm.providers.azure.lb.security_group import Access
from ccm.providers.azure.shared_writes import SharedResource
from tests.labs.azure.lab import OTHER_GROUP, Lab
from tests.providers.azure.conftest import Started, host
from tests.providers.azure.test_azure_balancers import (
    addresses,
    delete,
    destinations_of,
    joined,
    parts,
    rules,
    web,
)
from tests.support.waiting import until

RANGES: dict[str, Any] = {"loadBalancerSourceRanges": ["192.0.2.0/24"]}
INTERNAL = {"load-balancer-internal": "true"}
OTHER_PORT: dict[str, Any] = {"ports": [port(443, node_port=30443)]}


@pytest.fixture
def node(lab: Lab) -> Node:
    return host(lab.add_machine("node-1"))


async def test_the_address_of_another_service_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """It would be opened to everybody, and closed to all with the Service that named it."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    attacker = web("attacker", {"additional-public-ips": ip})
    with pytest.raises(Refused, match=f"{ip} is the address of another Service"):
        await cloud.ensure(attacker, node)
    assert rules(lab) == before
    await delete(cloud, attacker)
    assert rules(lab) == before


async def test_other_additional_addresses_with_each_refused_change_are_not_all_kept(
    cloud: Started, node: Node
) -> None:
    """A hundred more of what may be open each time, until a restart."""
    asked = {"pip-name": "missing"}
    for number in range(30):
        ips = [f"198.51.{number}.{last}" for last in range(MOST_ADDITIONAL)]
        attacker = web("attacker", {**asked, "additional-public-ips": ",".join(ips)})
        with pytest.raises(Refused):
            await cloud.ensure(attacker, node)
    (record,) = cast(Any, cloud.load_balancers)._records._found.values()
    assert len(record.additional) <= 10 * MOST_ADDITIONAL


@pytest.mark.parametrize("theirs", [{}, {"pip-name": "by-hand"}], ids=["made", "by hand"])
@pytest.mark.parametrize("group", [{}, {"load-balancer-resource-group": OTHER_GROUP}])
async def test_the_address_of_another_cluster_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node, group: dict[str, str], theirs: dict[str, str]
) -> None:
    """Two clusters may have one group and one security group; what is by hand has no mark."""
    lab.put("publicIPAddresses", "by-hand", BY_HAND)
    other = await Started(lab.config(), cluster_name="other").start()
    made = await other.ensure(web("theirs", theirs, **RANGES), host(lab.add_machine("theirs")))
    before, ip = rules(lab), made.ingress[0].ip
    attacker = web("attacker", {"additional-public-ips": ip, **group})
    with pytest.raises(Refused, match=f"{ip} is the address of another Service"):
        await cloud.ensure(attacker, node)
    assert rules(lab) == before
    await delete(cloud, attacker)
    assert rules(lab) == before


async def test_an_address_without_a_mark_is_no_additional_one_while_no_load_balancer_has_it(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Someone deletes the load balancer, and its Services come back one by one."""
    ip = lab.put("publicIPAddresses", "by-hand", BY_HAND)["properties"]["ipAddress"]
    victim = web("victim", {"pip-name": "by-hand"}, **RANGES)
    await cloud.ensure(victim, node)
    before = rules(lab)
    lab.delete("loadBalancers", "kit")
    with pytest.raises(Refused, match=f"{ip} is the address of another Service"):
        await cloud.ensure(web("attacker", {"additional-public-ips": ip}), node)
    assert rules(lab) == before
    assert (await cloud.ensure(victim, node)).ingress[0].ip == ip


@pytest.mark.parametrize(
    "ip",
    [
        *("10.224.0.4", "fd00::1", "127.0.0.1", "fe80::1%eth0", "0.0.0.0", "100.64.0.4"),
        "::ffff:10.224.0.4",
    ],
)
async def test_an_address_that_is_not_public_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node, ip: str
) -> None:
    """Of a machine such as the first, the tenant's ports would be open to everybody."""
    asked = web(annotations={"additional-public-ips": ip}, **OTHER_PORT)
    with pytest.raises(Refused, match="is not a public address"):
        await cloud.ensure(asked, node)
    assert rules(lab) == {}


@pytest.mark.parametrize("ip", ["168.63.129.16", "::ffff:168.63.129.16"])
async def test_the_address_of_the_platform_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node, ip: str
) -> None:
    """All nodes and Pods ask it for names: their questions would come to the tenant."""
    asked = web(annotations={"additional-public-ips": ip}, ports=[port(53, "UDP", 30053)])
    with pytest.raises(Refused, match="is not a public address"):
        await cloud.ensure(asked, node)
    assert rules(lab) == {}


async def test_one_service_has_no_more_additional_addresses_than_a_part_of_the_group_takes(
    lab: Lab, cloud: Started, node: Node
) -> None:
    many = ",".join(f"198.51.{number}.7" for number in range(101))
    with pytest.raises(Refused, match="more than 100 addresses"):
        await cloud.ensure(web(annotations={"additional-public-ips": many}), node)
    assert rules(lab) == {}


async def test_the_address_of_a_machine_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A network may have any addresses, as those of IPv6 are."""
    interface = lab.get("networkInterfaces", "node-1-nic")
    (record,) = interface["properties"]["ipConfigurations"]
    record["properties"]["privateIPAddress"] = "203.0.113.77"
    lab.put("networkInterfaces", "node-1-nic", interface)
    asked = web(annotations={"additional-public-ips": "203.0.113.77"}, **OTHER_PORT)
    with pytest.raises(Refused, match="is the address of a machine"):
        await cloud.ensure(asked, node)
    assert rules(lab) == {}


async def test_tags_by_which_controllers_know_their_addresses_are_not_the_tenants(
    lab: Lab, cloud: Started, node: Node
) -> None:
    tags = "K8s-Azure-Cluster-Name=theirs,k8s-azure-service=default/x,Service=default/y,colour=red"
    made = await cloud.ensure(web("attacker", {"pip-tags": tags}), node)
    assert len([one for one in made.warnings if "pip-tags" in one]) == 3
    ((_, record),) = addresses(lab).items()
    own = {"k8s-azure-cluster-name": "kit", "k8s-azure-service": "default/attacker"}
    assert record["tags"] == own | {"colour": "red"}


async def test_who_shares_an_address_gives_it_no_label_and_no_tags(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """The owner's own label would be refused, and no more than 50 tags fit."""
    ip = (await cloud.ensure(web("victim"), node)).ingress[0].ip
    asked = {"dns-label-name": "theirs", "pip-tags": "a=b"}
    made = await cloud.ensure(web("attacker", asked, loadBalancerIP=ip, **OTHER_PORT), node)
    assert [one for one in made.warnings if "dns-label-name" in one]
    assert [one for one in made.warnings if "pip-tags" in one]
    own = {"dns-label-name": "ours", "pip-tags": "colour=red"}
    await cloud.ensure(web("victim", own), node)
    ((_, record),) = addresses(lab).items()
    assert record["properties"]["dnsSettings"]["domainNameLabel"] == "ours"
    assert (record["tags"]["colour"], record["tags"].get("a")) == ("red", None)
    await delete(cloud, web("victim", own))
    ((_, record),) = addresses(lab).items()
    assert not record["properties"].get("dnsSettings"), "its name is not the other's now"
    await cloud.ensure(web("attacker", asked, loadBalancerIP=ip, **OTHER_PORT), node)
    ((_, record),) = addresses(lab).items()
    assert record["tags"]["a"] == "b", "it is the owner's heir"


BY_HAND: Json = {
    "sku": {"name": "Standard"},
    "properties": {"publicIPAllocationMethod": "Static"},
}


@pytest.mark.parametrize("change", ["moves", "is deleted", "is refused"])
async def test_a_label_goes_with_the_service_that_gave_it_to_an_address_by_hand(
    lab: Lab, cloud: Started, node: Node, change: str
) -> None:
    """Else it would keep all others from a label of their own, for ever."""
    lab.put("publicIPAddresses", "by-hand", BY_HAND)
    named = {"pip-name": "by-hand"}
    asked = web("attacker", {**named, "dns-label-name": "theirs"})
    if change == "is refused":
        lab.fail("PUT .*loadBalancers", status=400, code="InvalidResource")
        with pytest.raises(Refused):
            await cloud.ensure(asked, node)
    else:
        await cloud.ensure(asked, node)
    await (cloud.ensure(web("attacker"), node) if change == "moves" else delete(cloud, asked))
    record = addresses(lab)["by-hand"]
    assert not record["properties"].get("dnsSettings")
    assert not record.get("tags")
    await cloud.ensure(web("victim", {**named, "dns-label-name": "ours"}, **OTHER_PORT), node)


async def test_a_label_by_hand_and_one_of_another_cluster_stay(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Services of two clusters may have one name, and labels show nothing else."""
    label: Json = {"dnsSettings": {"domainNameLabel": "shop"}}
    body = {**BY_HAND, "properties": {**BY_HAND["properties"], **label}}
    lab.put("publicIPAddresses", "by-hand", body)
    asked = web(annotations={"pip-name": "by-hand", "dns-label-name": "shop"})
    await cloud.ensure(asked, node)
    await delete(cloud, asked)
    lab.put("publicIPAddresses", "theirs", BY_HAND)
    asked = web(annotations={"pip-name": "theirs", "dns-label-name": "theirs"})
    other = await Started(lab.config(), cluster_name="other").start()
    await other.ensure(asked, host(lab.add_machine("theirs")))
    await delete(cloud, asked)
    labels = {
        name: record["properties"]["dnsSettings"]["domainNameLabel"]
        for name, record in addresses(lab).items()
    }
    assert labels == {"by-hand": "shop", "theirs": "theirs"}


async def test_an_address_of_another_cluster_without_its_mark_keeps_no_service_waiting(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Old controllers wrote no cluster; in use elsewhere, it can never be deleted."""
    other = await Started(lab.config(), cluster_name="other").start()
    await other.ensure(web(), host(lab.add_machine("theirs")))
    ((theirs, record),) = addresses(lab).items()
    tags = {key: value for key, value in record["tags"].items() if "cluster" not in key}
    lab.put("publicIPAddresses", theirs, {**record, "tags": tags})
    await cloud.ensure(web(), node)
    await delete(cloud, web())
    assert {*addresses(lab)} == {theirs}
    assert parts(lab, "other")["frontendIPConfigurations"]
    ip = record["properties"]["ipAddress"]
    assert [destinations_of(rule) for rule in rules(lab).values()] == [{ip}], "it stays open"
    with pytest.raises(Refused, match=f"{ip} is the address of another Service"):
        await cloud.ensure(web(annotations={"additional-public-ips": ip}), node)


async def test_where_services_are_restricted_they_share_no_internal_address(
    lab: Lab, node: Node
) -> None:
    cloud = await Started(lab.config(), restricts_annotations=True).start()
    ip = (await cloud.ensure(web("victim", INTERNAL), node)).ingress[0].ip
    before = parts(lab, "kit-internal")
    attacker = web("attacker", INTERNAL, loadBalancerIP=ip, **OTHER_PORT)
    with pytest.raises(Refused, match="is another Service's"):
        await cloud.ensure(attacker, node)
    assert parts(lab, "kit-internal") == before


@pytest.mark.parametrize(
    "asked",
    [
        {"additional-public-ips": "203.0.113.9"},
        {"load-balancer-internal": "true", "load-balancer-internal-subnet": "theirs"},
        {"disable-load-balancer-nsg-rule": "true"},
    ],
    ids=lambda asked: next(reversed(asked)),
)
async def test_where_services_are_restricted_a_change_of_nodes_does_nothing_else(
    lab: Lab, node: Node, asked: dict[str, str]
) -> None:
    """A refused Service keeps what it has, with the nodes that there are now."""
    cloud = await Started(lab.config(), restricts_annotations=True).start()
    await cloud.ensure(web(annotations=OFF), node)
    before = rules(lab), parts(lab)["loadBalancingRules"], addresses(lab)
    nodes = [node, host(lab.add_machine("node-2"))]
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_nodes, web(annotations={**OFF, **asked}), nodes)
    assert (rules(lab), parts(lab)["loadBalancingRules"], addresses(lab)) == before
    assert joined(lab) == 2


@pytest.mark.parametrize("tags", ["a/b", "x\ny", ",".join(["A"] * 200)])
async def test_a_service_tag_that_is_none_is_refused(
    lab: Lab, cloud: Started, node: Node, tags: str
) -> None:
    with pytest.raises(Refused, match="allowed-service-tags"):
        await cloud.ensure(web(annotations={"allowed-service-tags": tags}), node)
    assert not addresses(lab)


@pytest.mark.parametrize(
    ("networks", "ports", "why"),
    [(5001, 1, "more than 5000 networks"), (5000, 21, "more than 100000 rules")],
)
async def test_allowed_networks_without_end_are_refused(
    lab: Lab, cloud: Started, node: Node, networks: int, ports: int, why: str
) -> None:
    """Forty such Services would keep the worker busy for longer than it may be silent."""
    allowed = ",".join(f"10.{number >> 8}.{number & 255}.0/24" for number in range(networks))
    listed = [port(80 + number, node_port=30080 + number) for number in range(ports)]
    with pytest.raises(Refused, match=why):
        await cloud.ensure(web(annotations={"allowed-ip-ranges": allowed}, ports=listed), node)
    assert not addresses(lab)


def test_each_of_many_ports_may_name_the_probe_of_another() -> None:
    """Each was compared with all others: for seconds the worker did nothing else."""
    ports = [port(number, node_port=30000 + number) for number in range(1, 2701)]
    keys = (f"service.beta.kubernetes.io/port_{item['port']}_health-probe_port" for item in ports)
    asked = service("a", dict.fromkeys(keys, "2700"), ports=ports, ipFamilies=["IPv4", "IPv6"])
    began = time.process_time()
    request = read_request(asked, AzureConfig(), "kit")
    assert time.process_time() - began < CPU_SECONDS
    assert {probe["properties"]["port"] for probe in request.probes("IPv4")} == {32700}


def test_what_is_read_for_each_port_has_few_characters() -> None:
    annotations = {f"{PREFIX}load-balancer-health-probe-protocol": "a" * 8193}
    with pytest.raises(Refused, match="more than 8192 characters"):
        read_request(service("a", annotations), AzureConfig(), "kit")


OFF = {"disable-load-balancer-floating-ip": "true"}
DENY = {"deny-all-except-load-balancer-source-ranges": "true"}


async def test_no_one_denies_traffic_to_the_machines(lab: Lab, cloud: Started, node: Node) -> None:
    """Without floating IP a rule that denies all others would cut off every machine."""
    with pytest.raises(Refused, match="deny-all-except-load-balancer-source-ranges"):
        await cloud.ensure(web(annotations={**OFF, **DENY}, **RANGES), node)
    assert rules(lab) == {}


@pytest.mark.parametrize("kind", [{}, INTERNAL], ids=["public", "internal"])
async def test_who_shares_an_address_neither_denies_nor_admits_for_the_other(
    lab: Lab, cloud: Started, node: Node, kind: dict[str, str]
) -> None:
    """The rule that denies all others is that of the Service whose address it is."""
    ip = (await cloud.ensure(web("victim", kind | DENY, **RANGES), node)).ingress[0].ip
    shared: dict[str, Any] = {**OTHER_PORT, "loadBalancerIP": ip}
    before = rules(lab)
    await cloud.ensure(web("attacker", kind, **shared, **RANGES), node)
    assert before.items() <= rules(lab).items()
    await delete(cloud, web("attacker", kind, **shared, **RANGES))
    assert rules(lab) == before
    await cloud.ensure(web("victim", kind, **RANGES), node)
    before = rules(lab)
    made = await cloud.ensure(web("attacker", kind | DENY, **shared, **RANGES), node)
    assert not [one for one in rules(lab).values() if one["access"] == "Deny"]
    assert [one for one in made.warnings if "deny-all-except" in one]


@pytest.mark.parametrize("kind", [{}, INTERNAL], ids=["public", "internal"])
@pytest.mark.parametrize("change", ["leaves", "moves inside", "floats no more", "is deleted"])
async def test_who_leaves_a_shared_address_closes_it_for_no_one_else(
    lab: Lab, cloud: Started, node: Node, kind: dict[str, str], change: str
) -> None:
    ip = (await cloud.ensure(web("victim", kind, **RANGES), node)).ingress[0].ip
    before = rules(lab)
    shared: dict[str, Any] = {**OTHER_PORT, "loadBalancerIP": ip}
    await cloud.ensure(web("attacker", kind, **shared, **RANGES), node)
    assert len(rules(lab)) == 2
    if change == "leaves":
        await cloud.ensure(web("attacker", kind, **OTHER_PORT, **RANGES), node)
    elif change == "moves inside":
        asked = web("attacker", kind | INTERNAL, **OTHER_PORT, **RANGES)
        asked.raw["status"]["loadBalancer"]["ingress"] = [{"ip": ip}]
        await cloud.ensure(asked, node)
    elif change == "floats no more":
        await cloud.ensure(web("attacker", kind | OFF, **shared, **RANGES), node)
    else:
        await delete(cloud, web("attacker", kind, **shared, **RANGES))
    assert before.items() <= rules(lab).items()
    open_to = [one["destinationPortRanges"] for one in rules(lab).values() if ip in str(one)]
    assert open_to == [["80"]], "what the other had open there is closed"


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_machine_that_has_left_the_pool_keeps_no_open_port(
    lab: Lab, cloud: Started, node: Node, is_deleted: bool
) -> None:
    """It may be on its way to another load balancer, or someone took it out."""
    await cloud.ensure(web(annotations=OFF), node)
    interface = lab.get("networkInterfaces", "node-1-nic")
    (record,) = interface["properties"]["ipConfigurations"]
    ip = record["properties"]["privateIPAddress"]
    record["properties"].pop("loadBalancerBackendAddressPools")
    lab.put("networkInterfaces", "node-1-nic", interface)
    assert ip in str(rules(lab))
    await (delete(cloud, web(annotations=OFF)) if is_deleted else cloud.ensure(web(), node))
    assert ip not in str(rules(lab))


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_list_without_the_shared_address_closes_it_for_no_one(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """It would count as no one's any more; it is asked for by itself."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before, read = rules(lab), AzureApi.list
    asked = web("attacker", **OTHER_PORT, loadBalancerIP=ip)
    await cloud.ensure(asked, node)

    async def list_less(api: AzureApi, operation: str, path: str, **query: str) -> list[Json]:
        found = await read(api, operation, path, **query)
        return [] if operation == "ListPublicAddresses" else found

    monkeypatch.setattr(AzureApi, "list", list_less)
    del asked.raw["spec"]["loadBalancerIP"]
    await (delete(cloud, asked) if is_deleted else cloud.ensure(asked, node))
    assert before.items() <= rules(lab).items()
    open_to = [one["destinationPortRanges"] for one in rules(lab).values() if ip in str(one)]
    assert open_to == [["80"]]


async def test_an_address_that_a_list_lacks_is_not_written_over_what_it_is(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What people set by hand would be lost, and the names of who shares it."""
    asked = web()
    published = [{"ip": item.ip} for item in (await cloud.ensure(asked, node)).ingress]
    asked.raw["status"] = {"loadBalancer": {"ingress": published}}
    await cloud.ensure(web("other", **OTHER_PORT, loadBalancerIP=published[0]["ip"]), node)
    ((_, record),) = addresses(lab).items()
    lab.merge(record["id"], properties={"idleTimeoutInMinutes": 9})
    before, read = addresses(lab), AzureApi.list

    async def list_less(api: AzureApi, operation: str, path: str, **query: str) -> list[Json]:
        found = await read(api, operation, path, **query)
        return [] if operation == "ListPublicAddresses" else found

    monkeypatch.setattr(AzureApi, "list", list_less)
    await cloud.ensure(asked, node)
    assert addresses(lab) == before


async def test_an_address_that_is_given_back_meanwhile_fails_no_one_else(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load balancers are read before addresses: one of another Service may go in between."""
    other, leaving = web("other", **OTHER_PORT), web("web")
    await cloud.ensure(other, node)
    ip = (await cloud.ensure(leaving, node)).ingress[0].ip
    leaving.raw["status"] = {"loadBalancer": {"ingress": [{"ip": ip}]}}
    read, other_cloud = AzureApi.list, await Started(lab.config()).start()

    async def list_late(api: AzureApi, operation: str, path: str, **query: str) -> list[Json]:
        if operation == "ListPublicAddresses":
            monkeypatch.setattr(AzureApi, "list", read)
            await delete(other_cloud, other)
        return await read(api, operation, path, **query)

    monkeypatch.setattr(AzureApi, "list", list_late)
    await delete(cloud, leaving)
    assert rules(lab) == {}


async def test_a_service_that_could_not_share_an_address_closes_it_for_no_one(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """The address has its name by then, but no frontend of it has the refused port."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    with pytest.raises(TakenByAnother, match=r"port 80 of frontend .* is another Service's"):
        await cloud.ensure(web("attacker", loadBalancerIP=ip), node)
    await delete(cloud, web("attacker", loadBalancerIP=ip))
    assert rules(lab) == before


async def test_a_shared_address_is_no_additional_one_of_who_leaves_it(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A port without a rule of the load balancer would be opened there, for everybody."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    await cloud.ensure(web("attacker", **OTHER_PORT, loadBalancerIP=ip), node)
    no_rule = {"service.beta.kubernetes.io/port_80_no_lb_rule": "true"}
    ports = [port(80, node_port=30081), port(443, node_port=30443)]
    attacker = web("attacker", {**no_rule, "additional-public-ips": ip}, ports=ports)
    made = await cloud.ensure(attacker, node)
    assert [one for one in made.warnings if f"{ip} is the address of another Service" in one]
    assert ip not in [one.ip for one in made.ingress]
    assert {name: rule for name, rule in rules(lab).items() if ip in str(rule)} == before


@pytest.mark.parametrize("kind", [{}, OFF], ids=["floats", "off"])
async def test_an_additional_address_that_another_service_gets_is_given_up(
    lab: Lab, cloud: Started, node: Node, kind: dict[str, str]
) -> None:
    """Named before it was anyone's: the other's clients would come here, past its sources."""
    ip = lab.put("publicIPAddresses", "by-hand", BY_HAND)["properties"]["ipAddress"]
    asked = web("attacker", {"additional-public-ips": ip})
    assert ip in [one.ip for one in (await cloud.ensure(asked, node)).ingress]
    await cloud.ensure(web("victim", {**kind, "pip-name": "by-hand"}, **RANGES), node)
    left = [rule["sourceAddressPrefix"] for rule in rules(lab).values() if ip in str(rule)]
    assert left == ([] if kind else RANGES["loadBalancerSourceRanges"])
    made = await cloud.ensure(asked, node)
    assert ip not in [one.ip for one in made.ingress]
    assert [one for one in made.warnings if f"{ip} is the address of another Service" in one]
    await delete(cloud, asked)
    assert left == [rule["sourceAddressPrefix"] for rule in rules(lab).values() if ip in str(rule)]


@pytest.mark.parametrize("whose", ["victim", "attacker"])
async def test_an_address_whose_ports_are_all_anothers_is_not_shared(
    lab: Lab, cloud: Started, node: Node, whose: str
) -> None:
    """Azure prefers a rule of one port; one of all ports would let clients reach the other's."""
    is_ha = {**INTERNAL, "load-balancer-enable-high-availability-ports": "true"}
    kinds = {"victim": INTERNAL, "attacker": INTERNAL, whose: is_ha}
    ip = (await cloud.ensure(web("victim", kinds["victim"], **RANGES), node)).ingress[0].ip
    before = rules(lab)
    attacker = web("attacker", kinds["attacker"], **OTHER_PORT, loadBalancerIP=ip)
    with pytest.raises(Refused, match="one of them has all its ports"):
        await cloud.ensure(attacker, node)
    assert rules(lab) == before


@pytest.mark.parametrize(
    "kind", [{}, OFF, {"disable-load-balancer-nsg-rule": "true"}], ids=["floats", "off", "no rule"]
)
@pytest.mark.parametrize("place", [{}, INTERNAL], ids=["public", "internal"])
async def test_who_has_no_rule_at_a_shared_address_opens_and_closes_nothing_there(
    lab: Lab, cloud: Started, node: Node, kind: dict[str, str], place: dict[str, str]
) -> None:
    """None of its ports has a rule, so that none shows that it uses the frontend."""
    ip = (await cloud.ensure(web("victim", place, **RANGES), node)).ingress[0].ip
    before = rules(lab)
    no_rule = {"service.beta.kubernetes.io/port_443_no_lb_rule": "true"}
    attacker = web("attacker", {**place, **kind, **no_rule}, **OTHER_PORT, loadBalancerIP=ip)
    await cloud.ensure(attacker, node)
    assert rules(lab) == before
    await delete(cloud, attacker)
    assert rules(lab) == before


@pytest.mark.parametrize("place", [{}, INTERNAL], ids=["public", "internal"])
async def test_who_has_no_rule_at_a_shared_address_is_known_to_share_it(
    lab: Lab, cloud: Started, node: Node, place: dict[str, str]
) -> None:
    """Else it would keep the address with a port of the owner's, for as long as it is refused."""
    ip = (await cloud.ensure(web("victim", place), node)).ingress[0].ip
    no_rule = {**place, "service.beta.kubernetes.io/port_443_no_lb_rule": "true"}
    made = await cloud.ensure(web("attacker", no_rule, **OTHER_PORT, loadBalancerIP=ip), node)
    assert (made.ingress[0].ip, made.is_shared) == (ip, True)


@pytest.mark.parametrize("kind", ["inboundNatRules", "inboundNatPools"])
async def test_no_one_gets_a_port_of_a_frontend_that_leads_to_a_machine(
    lab: Lab, cloud: Started, node: Node, kind: str
) -> None:
    """As to SSH, or to the API server: nodes would lead their clients to the tenant."""
    address = lab.put("publicIPAddresses", "by-hand", BY_HAND)["id"]
    await cloud.ensure(web("beside", **OTHER_PORT), node)
    balancer, numbers = lab.get("loadBalancers", "kit"), {"frontendPort": 22}
    if kind == "inboundNatPools":
        numbers = {"frontendPortRangeStart": 20, "frontendPortRangeEnd": 30}
    frontend = f"{balancer['id']}/frontendIPConfigurations/by-hand"
    of = {"frontendIPConfiguration": {"id": frontend}, "protocol": "Tcp", "backendPort": 22}
    properties = balancer["properties"]
    used = {"name": "by-hand", "properties": {"publicIPAddress": {"id": address}}}
    properties["frontendIPConfigurations"].append(used)
    properties[kind] = [{"name": "ssh", "properties": {**of, **numbers}}]
    lab.put("loadBalancers", "kit", balancer)
    asked, ports = {"pip-name": "by-hand"}, [port(80), port(22, node_port=30022)]
    for number in (22, 80):
        no_rule = {f"service.beta.kubernetes.io/port_{number}_no_lb_rule": "true"}
        attacker = web("attacker", {**asked, **no_rule}, ports=ports)
        with pytest.raises(TakenByAnother, match="port 22 of frontend by-hand"):
            await cloud.ensure(attacker, node)
    await cloud.ensure(web("attacker", asked), node)
    assert cloud.load_balancers
    found = await invoke(cloud.load_balancers.get, web("attacker", asked, ports=ports))
    assert found
    assert (found.is_shared, found.is_contested) == (True, True)
    udp = web("attacker", asked, ports=[port(80), port(22, "UDP", 30022)])
    assert (await cloud.ensure(udp, node)).is_shared


async def test_a_port_without_a_rule_of_the_load_balancer_is_not_opened_for_another(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """It may be one that the other has without a rule."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    no_rule = {"service.beta.kubernetes.io/port_81_no_lb_rule": "true"}
    ports = [port(81, node_port=30081), port(443, node_port=30443)]
    await cloud.ensure(web("attacker", no_rule, ports=ports, loadBalancerIP=ip), node)
    (added,) = (one for name, one in rules(lab).items() if name not in before)
    assert added["destinationPortRanges"] == ["443"]


@pytest.mark.parametrize("place", [{}, INTERNAL], ids=["public", "internal"])
async def test_no_two_services_have_one_port_of_an_address(
    lab: Lab, cloud: Started, node: Node, place: dict[str, str]
) -> None:
    """Not without a rule either: kube-proxy would lead the clients of one of them to the other."""
    ip = (await cloud.ensure(web("victim", place, **RANGES), node)).ingress[0].ip
    shared: dict[str, Any] = {**OTHER_PORT, "loadBalancerIP": ip}
    await cloud.ensure(web("attacker", place, **shared), node)
    before = rules(lab), parts(lab, "kit-internal" if place else "kit")
    no_rule = {"service.beta.kubernetes.io/port_80_no_lb_rule": "true"}
    for annotations in ({}, no_rule):
        attacker = web("attacker", {**place, **annotations}, loadBalancerIP=ip)
        with pytest.raises(TakenByAnother, match="port 80 of frontend"):
            await cloud.ensure(attacker, node)
    assert (rules(lab), parts(lab, "kit-internal" if place else "kit")) == before
    for asked, is_taken in ((web("attacker", place, **shared), False), (attacker, True)):
        assert cloud.load_balancers
        found = await invoke(cloud.load_balancers.get, asked)
        assert found
        assert (found.is_shared, found.is_contested) == (True, is_taken)
    other_protocol = web("attacker", place, ports=[port(80, "UDP")], loadBalancerIP=ip)
    await cloud.ensure(other_protocol, node)


@pytest.mark.parametrize("place", [{}, INTERNAL], ids=["public", "internal"])
async def test_no_one_gets_the_port_that_another_has_without_a_rule(
    lab: Lab, cloud: Started, node: Node, place: dict[str, str]
) -> None:
    """kube-proxy serves it at the address: clients of it in the cluster would come to either."""
    no_rule = {**place, "service.beta.kubernetes.io/port_443_no_lb_rule": "true"}
    ports = [port(80), port(443, node_port=30443)]
    ip = (await cloud.ensure(web("victim", no_rule, ports=ports), node)).ingress[0].ip
    attacker = web("attacker", place, ports=[port(443, node_port=30444)], loadBalancerIP=ip)
    with pytest.raises(TakenByAnother, match="port 443 of frontend"):
        await cloud.ensure(attacker, node)
    await cloud.ensure(web("victim", place), node)
    await cloud.ensure(attacker, node)


@pytest.mark.parametrize("has_rule", [True, False])
@pytest.mark.parametrize("place", [{}, INTERNAL], ids=["public", "internal"])
async def test_no_one_gets_the_port_of_who_shares_an_address_without_a_rule(
    lab: Lab, cloud: Started, node: Node, place: dict[str, str], has_rule: bool
) -> None:
    """Nothing in the load balancer shows that it uses the frontend."""
    ip = (await cloud.ensure(web("owner", place), node)).ingress[0].ip
    no_rule = {**place, "service.beta.kubernetes.io/port_443_no_lb_rule": "true"}
    victim = web("victim", no_rule, **OTHER_PORT, loadBalancerIP=ip)
    await cloud.ensure(victim, node)
    ports = [port(443, node_port=30444)]
    attacker = web("attacker", place if has_rule else no_rule, ports=ports, loadBalancerIP=ip)
    with pytest.raises(TakenByAnother, match="port 443 of frontend"):
        await cloud.ensure(attacker, node)
    await delete(cloud, victim)
    await cloud.ensure(attacker, node)


@pytest.mark.parametrize("annotations", [{}, OFF])
async def test_who_gives_up_its_backends_takes_none_from_others(
    lab: Lab, cloud: Started, node: Node, annotations: dict[str, str]
) -> None:
    """The pool of machines is all Services': its rules go, where they lead to node ports."""
    await cloud.ensure(web("victim"), node)
    hostile = web("hostile", annotations, **OTHER_PORT)
    await cloud.ensure(hostile, node)
    balancers: Any = cloud.load_balancers
    await balancers.withdraw(hostile)
    assert joined(lab) == 1
    assert len(parts(lab)["loadBalancingRules"]) == (1 if annotations else 2)
    assert len(parts(lab)["frontendIPConfigurations"]) == 2
    await cloud.ensure(hostile, node)
    assert len(parts(lab)["loadBalancingRules"]) == 2


async def test_another_service_closes_no_node_port_of_one_without_floating_ip(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A port without a rule of the load balancer is not the reason to close those with one."""
    ports = [port(80), port(443, node_port=30443)]
    annotations = {**OFF, "service.beta.kubernetes.io/port_443_no_lb_rule": "true"}
    await cloud.ensure(web("victim", annotations, ports=ports, **RANGES), node)
    before = rules(lab)
    assert len(before) == 1
    other: dict[str, Any] = {"ports": [port(81, node_port=30081)]}
    await cloud.ensure(web("attacker", **other), node)
    await delete(cloud, web("attacker", **other))
    assert rules(lab) == before


@pytest.mark.parametrize("off", ["True", " true", None], ids=["case", "blank", "taken away"])
async def test_node_ports_are_closed_however_the_annotation_is_written_at_the_end(
    lab: Lab, cloud: Started, node: Node, off: str | None
) -> None:
    """A Service is judged by its rules: tenants change annotations and delete at once."""
    await cloud.ensure(web(annotations={**OFF, next(iter(OFF)): off or "true"}), node)
    assert len(rules(lab)) == 1
    await delete(cloud, web(annotations={next(iter(OFF)): off} if off else {}))
    assert rules(lab) == {}


async def test_an_address_in_a_former_resource_group_is_deleted(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Else a tenant would take all that the account may have, with one Service."""
    there = {"load-balancer-resource-group": OTHER_GROUP}
    await cloud.ensure(web(annotations=there), node)
    await cloud.ensure(web(), node)
    assert len(addresses(lab)) == 1
    assert len(destinations_of(*rules(lab).values())) == 1
    await cloud.ensure(web(annotations=there), node)
    await delete(cloud, web())
    assert not addresses(lab)
    assert not rules(lab)


NAMED = {"pip-name": "by-hand"}
BAD_RULE: dict[str, Any] = {"status": 400, "code": "SecurityRuleInvalidAddressPrefix"}


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("times", [1, 2], ids=["at once", "later"])
async def test_a_private_address_that_is_given_up_by_a_refused_change_is_closed(
    lab: Lab, cloud: Started, node: Node, times: int, is_deleted: bool
) -> None:
    """Azure gives it to the next machine, whose port would be open to everyone."""
    ip = (await cloud.ensure(web(annotations=INTERNAL, **RANGES), node)).ingress[0].ip
    asked = web(annotations={**INTERNAL, "load-balancer-ipv4": "10.224.7.7"}, **RANGES)
    lab.fail("PUT .*networkSecurityGroups", times, **BAD_RULE)
    with pytest.raises(Refused, match="SecurityRuleInvalid"):
        await cloud.ensure(asked, node)
    assert (ip in str(rules(lab))) is (times > 1)
    if is_deleted:
        await delete(cloud, asked)
        assert rules(lab) == {}
    else:
        await cloud.ensure(asked, node)
        assert [destinations_of(rule) for rule in rules(lab).values()] == [{"10.224.7.7"}]


@pytest.mark.parametrize("group", [{}, {"load-balancer-resource-group": OTHER_GROUP}])
@pytest.mark.parametrize("refused", ["networkSecurityGroups", "loadBalancers"])
async def test_an_address_in_another_group_is_not_left_by_a_refused_change(
    lab: Lab, cloud: Started, node: Node, group: dict[str, str], refused: str
) -> None:
    """Else a tenant would take all that the account may have, with one Service after another."""
    other = {} if group else {"load-balancer-resource-group": OTHER_GROUP}
    is_served = refused == "networkSecurityGroups"
    if is_served:
        await cloud.ensure(web(annotations=group), node)
    lab.fail(f"PUT .*{refused}", **BAD_RULE)
    with pytest.raises(Refused, match="SecurityRuleInvalid"):
        await cloud.ensure(web(annotations=other if is_served else group), node)
    await delete(cloud, web(annotations=other))
    assert not lab.objects("publicIPAddresses")
    assert rules(lab) == {}


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("kinds", [({}, NAMED), (NAMED, {})], ids=["made", "by hand"])
async def test_a_public_address_that_is_given_up_by_a_refused_change_is_closed(
    lab: Lab, cloud: Started, node: Node, kinds: tuple[Json, Json], is_deleted: bool
) -> None:
    """Azure refuses to close it as well, at first, and no status has it."""
    lab.put("publicIPAddresses", "by-hand", BY_HAND)
    ip = (await cloud.ensure(web(annotations=kinds[0], **RANGES), node)).ingress[0].ip
    asked = web(annotations=kinds[1], **RANGES)
    lab.fail("PUT .*networkSecurityGroups", 2, **BAD_RULE)
    with pytest.raises(Refused, match="SecurityRuleInvalid"):
        await cloud.ensure(asked, node)
    assert ip in str(rules(lab))
    await (delete(cloud, asked) if is_deleted else cloud.ensure(asked, node))
    assert ip not in str(rules(lab))


async def test_a_refused_change_takes_no_address_that_a_service_has(
    lab: Lab, cloud: Started, node: Node
) -> None:
    there = {"load-balancer-resource-group": OTHER_GROUP}
    await cloud.ensure(web(annotations=there), node)
    before = addresses(lab), parts(lab)["frontendIPConfigurations"]
    lab.fail("PUT .*networkSecurityGroups", **BAD_RULE)
    with pytest.raises(Refused, match="SecurityRuleInvalid"):
        await cloud.ensure(web(annotations=there, **RANGES), node)
    assert (addresses(lab), parts(lab)["frontendIPConfigurations"]) == before


async def test_names_of_resource_groups_are_not_kept_in_memory(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A tenant names another one with each change, of 250 KB."""
    for number in range(5):
        group = f"{number}" + "g" * 100
        with pytest.raises(Refused, match="load-balancer-resource-group"):
            await cloud.ensure(web(annotations={"load-balancer-resource-group": group}), node)
    lists = cloud.load_balancers._addresses._lists  # type: ignore[union-attr]
    for number in range(5):
        asked = web(annotations={"load-balancer-resource-group": f"none-{number}"})
        with pytest.raises(CloudError):
            await cloud.ensure(asked, node)
    assert not lists


class RefusesBad:
    """The requests that a shared resource takes; one with `bad` in it is refused."""

    def __init__(self) -> None:
        self.record: Json = {"id": "/lb"}
        self.puts = 0

    async def get(self, operation: str, path: str) -> Json:
        return self.record

    async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
        self.puts += 1
        await asyncio.sleep(0)
        if "bad" in body["properties"]:
            raise Refused("400 bad")
        self.record = {**body, "properties": {**body["properties"]}}
        state = {"provisioningState": "Succeeded"}
        return {**body, "properties": {**body["properties"], **state}}


def mark(name: str, record: Json) -> None:
    record["properties"] = {**record.get("properties", {}), name: True}


async def test_a_service_that_azure_refuses_costs_others_few_writes() -> None:
    """Each takes Azure seconds: it is found by halves, and its namespace is alone from then on.

    A tenant may give each such Service another name.
    """
    api: Any = RefusesBad()
    shared = SharedResource(api, "LoadBalancer", "/lb", {})
    for number, most in ((0, 10), (1, 3), (2, 3)):
        api.puts = 0
        edits = [partial(mark, f"{number}-{at}") for at in range(16)]
        good = (shared.change(edit, owner="honest") for edit in edits)
        bad = shared.change(partial(mark, "bad"), owner="hostile")
        results = await asyncio.gather(*good, bad, return_exceptions=True)
        assert [type(one) for one in results if one is None or isinstance(one, Exception)] == [
            Refused
        ]
        assert api.puts <= most
        assert len(api.record["properties"]) == 16 * (number + 1)


async def test_where_azure_refuses_all_no_one_is_alone_later() -> None:
    api: Any = RefusesBad()
    shared = SharedResource(api, "LoadBalancer", "/lb", {})
    changes = [shared.change(partial(mark, "bad"), owner=name) for name in "abc"]
    await asyncio.gather(*changes, return_exceptions=True)
    api.puts = 0
    await asyncio.gather(*(shared.change(partial(mark, name), owner=name) for name in "abc"))
    assert api.puts == 2, "one that came first, and one for those that waited"


async def test_changes_that_are_written_together_leave_turns_to_others() -> None:
    """Forty Services of 5,000 source ranges took 5 s without progress in the security group."""
    api: Any = RefusesBad()
    shared, turns, seen = SharedResource(api, "LoadBalancer", "/lb", {}), count(), list[int]()

    async def take_turns() -> None:
        for seen[:] in zip(turns):
            await asyncio.sleep(0)

    def edit(record: Json) -> None:
        mark(str(len(edited)), record)
        edited.extend(seen)

    edited, others = list[int](), asyncio.create_task(take_turns())
    await asyncio.gather(*(shared.change(edit, owner="a") for _ in range(8)))
    others.cancel()
    assert len({*edited}) == len(edited) == 8


def test_a_network_by_tag_may_have_host_bits() -> None:
    """It was looked at once more for its family, as each of 5,000 was for each rule."""
    access = Access(["10.0.0.1/24", "fd00::1/64", "Storage"], {"Tcp": ["80"]})
    found = [rule["properties"]["sourceAddressPrefix"] for rule in access.rules("IPv4")]
    assert found == ["Storage", "10.0.0.1/24"]


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_additional_addresses_that_are_no_more_are_closed(
    lab: Lab, cloud: Started, node: Node, is_deleted: bool
) -> None:
    """Each would stay in the one group of all Services, which takes 4,000; the status has them."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    made = await cloud.ensure(web("web", {"additional-public-ips": "198.51.100.7"}), node)
    asked = web("web")
    published = [{"ip": item.ip} for item in made.ingress]
    hostile = [{"ip": one} for one in (ip, "10.224.0.4", "here")]  # who may write a status
    asked.raw["status"]["loadBalancer"]["ingress"] = [*published, *hostile]
    if is_deleted:
        await delete(cloud, asked)
        assert rules(lab) == before
    else:
        await cloud.ensure(asked, node)
        assert not [one for one in rules(lab).values() if "198.51.100.7" in destinations_of(one)]
    assert before.items() <= rules(lab).items()


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_additional_addresses_that_no_status_has_are_closed(
    lab: Lab, cloud: Started, node: Node, is_deleted: bool
) -> None:
    """As when the Service is changed before its status is written, again and again."""
    await cloud.ensure(web("victim", **RANGES), node)
    before = rules(lab)
    for number in (7, 8):
        asked = {"additional-public-ips": f"198.51.100.{number}"}
        await cloud.ensure(web("web", asked), node)
    assert not [one for one in rules(lab).values() if "198.51.100.7" in destinations_of(one)]
    if is_deleted:
        await delete(cloud, web("web"))
        assert rules(lab) == before
    else:
        await cloud.ensure(web("web"), node)
        assert not [one for one in rules(lab).values() if "198.51.100.8" in destinations_of(one)]


@pytest.mark.parametrize("change", ["comes", "leaves", "is deleted"])
async def test_an_additional_address_of_two_services_is_closed_for_neither(
    lab: Lab, cloud: Started, node: Node, change: str
) -> None:
    """It has no frontend here that would show whose it is."""
    asked = {"additional-public-ips": "198.51.100.7"}
    await cloud.ensure(web("victim", asked, **RANGES), node)
    before = rules(lab)
    made = await cloud.ensure(web("attacker", asked, **OTHER_PORT), node)
    if change == "leaves":
        alone = web("attacker", **OTHER_PORT)
        published = [{"ip": item.ip} for item in made.ingress]
        alone.raw["status"]["loadBalancer"]["ingress"] = published
        await cloud.ensure(alone, node)
    elif change == "is deleted":
        await delete(cloud, web("attacker", asked, **OTHER_PORT))
        assert rules(lab) == before
    assert before.items() <= rules(lab).items()


async def test_where_services_are_restricted_a_deletion_closes_no_additional_address_of_another(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A Service that is refused since then keeps what it has: nothing would open it again."""
    asked = {"additional-public-ips": "198.51.100.7"}
    await cloud.ensure(web("victim", asked, **RANGES), node)
    before = rules(lab)
    restricted = await Started(lab.config(), restricts_annotations=True).start()
    await delete(restricted, web("attacker", asked))
    assert rules(lab) == before


class Interrupted:
    """The first change of the security group waits until something else is done."""

    def __init__(self, cloud: Started, monkeypatch: pytest.MonkeyPatch) -> None:
        admission: Any = cloud.load_balancers._admission  # type: ignore[union-attr]
        self.open, self.meanwhile = admission.open, list[Awaitable[Any]]()
        monkeypatch.setattr(admission, "open", self)

    async def __call__(self, *args: Any) -> None:
        while self.meanwhile:
            await self.meanwhile.pop()
        await self.open(*args)


async def test_who_read_before_another_began_closes_no_node_port_of_the_other(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cloud.ensure(web("first", ports=[port(81, node_port=30081)]), node)
    interrupted = Interrupted(cloud, monkeypatch)
    interrupted.meanwhile.append(cloud.ensure(web("victim", OFF, **OTHER_PORT), node))
    await cloud.ensure(web("other"), node)
    opened = [one["destinationPortRanges"] for one in rules(lab).values()]
    assert sorted(opened) == [["30443"], ["80"], ["81"]]


async def test_who_leaves_a_shared_address_closes_no_port_that_its_owner_gets_meanwhile(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    await cloud.ensure(web("attacker", **OTHER_PORT, loadBalancerIP=ip), node)
    changed = web("victim", **RANGES, ports=[port(8443, node_port=30080)])
    interrupted = Interrupted(cloud, monkeypatch)
    interrupted.meanwhile.append(cloud.ensure(changed, node))
    await cloud.ensure(web("attacker", **OTHER_PORT), node)
    open_to = [one["destinationPortRanges"] for one in rules(lab).values() if ip in str(one)]
    assert open_to == [["8443"]]


async def test_a_service_that_is_made_while_the_last_one_goes_has_its_machines(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its interfaces were read while they were members of the load balancer that goes."""
    await cloud.ensure(web(), node)
    lbs: Any = cloud.load_balancers
    made, remove = list[asyncio.Task[Any]](), lbs._api.delete

    async def remove_later(operation: str, path: str) -> Any:
        if operation == "DeleteLoadBalancer":
            made.append(asyncio.create_task(cloud.ensure(web("other", **OTHER_PORT), node)))
            waiting = [item._shared._waiting for item in lbs._resources.by_place.values()]
            await until(lambda: any(len(item) > 1 for item in waiting), "the other has to wait")
        return await remove(operation, path)

    monkeypatch.setattr(lbs._api, "delete", remove_later)
    await delete(cloud, web())
    await made[0]
    assert joined(lab) == 1


async def test_the_address_of_a_service_that_is_being_made_is_its_own(
    lab: Lab, cloud: Started, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there before its frontend: who named it first would have its ports there."""
    victim = web("victim")
    name = f"kit-{victim.default_balancer_name}"
    hostile, lbs = web("hostile", {"pip-name": name}), cast(Any, cloud.load_balancers)
    plan, refused = lbs._plan, list[str]()

    async def plan_later(*args: Any) -> Any:
        monkeypatch.setattr(lbs, "_plan", plan)
        with pytest.raises(RetryAfter, match="is another Service's") as error:
            await invoke(lbs.ensure, hostile, [node])
        refused.append(str(error.value))
        return await plan(*args)

    monkeypatch.setattr(lbs, "_plan", plan_later)
    made = await cloud.ensure(victim, node)
    assert refused
    with pytest.raises(TakenByAnother):
        await cloud.ensure(hostile, node)
    shared = await cloud.ensure(web("hostile", {"pip-name": name}, **OTHER_PORT), node)
    assert shared.ingress == made.ingress


async def test_tags_without_number_are_refused(lab: Lab, cloud: Started, node: Node) -> None:
    """Each letter was a warning that was kept, of 17 MB for one Service."""
    with pytest.raises(Refused, match="pip-tags: more than 50 items"):
        await cloud.ensure(web(annotations={"pip-tags": "a," * 100_000}), node)


async def test_what_a_service_has_is_told_after_a_refused_change(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """By that its status is corrected: the address that it gave up is soon another machine's."""
    ip = (await cloud.ensure(web(annotations=INTERNAL, **RANGES), node)).ingress[0].ip
    asked = web(annotations={**INTERNAL, "load-balancer-ipv4": "10.224.7.7"}, **RANGES)
    lab.fail("PUT .*networkSecurityGroups", **BAD_RULE)
    with pytest.raises(Refused, match="SecurityRuleInvalid"):
        await cloud.ensure(asked, node)
    found = await invoke(cast(Any, cloud.load_balancers).get, asked)
    assert [one.ip for one in found.ingress] == ["10.224.7.7"] != [ip]


async def test_additional_addresses_in_the_status_are_told_as_well(
    lab: Lab, cloud: Started, node: Node
) -> None:
    asked = web(annotations={"additional-public-ips": "198.51.100.7"})
    made = await cloud.ensure(asked, node)
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": one.ip} for one in made.ingress]}}
    found = await invoke(cast(Any, cloud.load_balancers).get, asked)
    assert [one.ip for one in found.ingress] == [one.ip for one in made.ingress]


async def test_an_additional_address_that_another_service_gets_is_told_no_more(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """By that the status of one that is refused is corrected, which gives nothing up itself."""
    ip = lab.put("publicIPAddresses", "by-hand", BY_HAND)["properties"]["ipAddress"]
    asked = web("attacker", {"additional-public-ips": ip})
    made = await cloud.ensure(asked, node)
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": one.ip} for one in made.ingress]}}
    await cloud.ensure(web("victim", {"pip-name": "by-hand"}, **RANGES), node)
    found = await invoke(cast(Any, cloud.load_balancers).get, asked)
    assert [one.ip for one in found.ingress] == [made.ingress[0].ip] != [ip]


async def test_who_shared_an_address_keeps_no_other_from_the_one_that_has_its_name(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """The Service that it was made for was an internal one for a while."""
    ip = (await cloud.ensure(web("victim"), node)).ingress[0].ip
    hostile = web("hostile", loadBalancerIP=ip, **OTHER_PORT)
    await cloud.ensure(hostile, node)
    await cloud.ensure(web("victim", INTERNAL), node)
    made = await cloud.ensure(web("victim"), node)
    assert [one.ip for one in made.ingress] == [ip]
    await delete(cloud, hostile)
    assert (await cloud.ensure(web("victim"), node)).ingress == made.ingress


async def test_who_waits_for_an_address_that_never_has_a_load_balancer_leads_nowhere(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A Service that is refused keeps its address, and another one that names it always waits.

    The worker takes away its rules for node ports that another Service has by now.
    """
    many = [port(number, node_port=30000 + number) for number in range(100, 400)]
    with pytest.raises(NoRoom):
        await cloud.ensure(web("bait", ports=many), node)
    (bait,) = addresses(lab)
    await cloud.ensure(web("web", OFF), node)
    waiting = web("web", {**OFF, "pip-name": bait}, **OTHER_PORT)
    balancers: Any = cloud.load_balancers
    for _ in range(3):
        with pytest.raises(RetryAfter, match="which moves"):
            await invoke(balancers.ensure, waiting, (node,))
    assert parts(lab)["loadBalancingRules"]
    await balancers.withdraw(waiting)
    assert not parts(lab)["loadBalancingRules"]
