"""What tenants write in their Services harms no other Service."""

import asyncio
import time
from functools import partial
from itertools import count
from typing import Any, cast

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import port, service
from ccm.cloud.testkit.test_untrusted import CPU_SECONDS
from ccm.errors import CloudError, Refused
from ccm.model.objects import Json, Node
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb.annotations import PREFIX
from ccm.providers.azure.lb.request import read_request
from ccm.providers.azure.lb.security_group import Access
from ccm.providers.azure.shared_writes import SharedResource
from tests.labs.azure.lab import OTHER_GROUP, Lab
from tests.providers.azure.conftest import Started, host
from tests.providers.azure.test_azure_balancers import (
    BY_HAND,
    DENY,
    INTERNAL,
    OFF,
    OTHER_PORT,
    RANGES,
    addresses,
    delete,
    destinations_of,
    joined,
    parts,
    rules,
    web,
)
from tests.support.waiting import until

NAMED = {"pip-name": "by-hand"}
BAD_RULE: dict[str, Any] = {"status": 400, "code": "SecurityRuleInvalidAddressPrefix"}


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


async def test_tags_by_which_controllers_know_their_addresses_are_not_the_tenants(
    lab: Lab, cloud: Started, node: Node
) -> None:
    tags = "K8s-Azure-Cluster-Name=theirs,k8s-azure-service=default/x,Service=default/y,colour=red"
    made = await cloud.ensure(web("attacker", {"pip-tags": tags}), node)
    assert len([one for one in made.warnings if "pip-tags" in one]) == 3
    ((_, record),) = addresses(lab).items()
    own = {"k8s-azure-cluster-name": "kit", "k8s-azure-service": "default/attacker"}
    assert record["tags"] == own | {"colour": "red"}


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


async def test_no_one_denies_traffic_to_the_machines(lab: Lab, cloud: Started, node: Node) -> None:
    """Without floating IP a rule that denies all others would cut off every machine."""
    with pytest.raises(Refused, match="deny-all-except-load-balancer-source-ranges"):
        await cloud.ensure(web(annotations={**OFF, **DENY}, **RANGES), node)
    assert rules(lab) == {}


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
