"""Services that share an address: each has its ports there, and none has those of another."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import port
from ccm.errors import CloudError, NoRoom, Refused, RetryAfter, TakenByAnother
from ccm.model.objects import Json, Node
from ccm.providers.azure.api import AzureApi
from tests.labs.azure.lab import Lab
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
    parts,
    rules,
    web,
)


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


@pytest.mark.parametrize("kind", [{}, INTERNAL], ids=["public", "internal"])
async def test_who_shares_an_address_neither_denies_nor_admits_for_the_other(
    lab: Lab, cloud: Started, node: Node, kind: dict[str, str]
) -> None:
    """The rule that denies all others is that of the Service whose address it is.

    After a restart nothing but the frontend shows whose it is.
    """
    ip = (await cloud.ensure(web("victim", kind | DENY, **RANGES), node)).ingress[0].ip
    shared: dict[str, Any] = {**OTHER_PORT, "loadBalancerIP": ip}
    before = rules(lab)
    restarted = await Started(lab.config()).start()
    await restarted.ensure(web("attacker", kind, **shared, **RANGES), node)
    assert before.items() <= rules(lab).items()
    await delete(restarted, web("attacker", kind, **shared, **RANGES))
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


@pytest.mark.parametrize("end", [{}, INTERNAL, None], ids=["moves", "is internal", "is deleted"])
async def test_who_leaves_an_address_whose_owner_is_gone_leaves_nothing_there(
    lab: Lab, cloud: Started, node: Node, end: dict[str, str] | None
) -> None:
    """No one would delete its frontend, its address and its rule: all have one load balancer."""
    ip = (await cloud.ensure(web("first"), node)).ingress[0].ip
    await cloud.ensure(web("second", loadBalancerIP=ip, **OTHER_PORT), node)
    await delete(cloud, web("first"))
    if end is not None:
        await cloud.ensure(web("second", end, **OTHER_PORT), node)
        assert ip not in {it["properties"]["ipAddress"] for it in addresses(lab).values()}
    await delete(cloud, web("second", end, **OTHER_PORT))
    assert (addresses(lab), rules(lab), lab.objects("loadBalancers")) == ({}, {}, {})


async def test_of_two_who_leave_a_shared_address_at_once_the_last_deletes_it(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Each saw the other as one of those that use it, and left it to the other."""
    ip = (await cloud.ensure(web("first"), node)).ingress[0].ip
    both = web("first"), web("second", loadBalancerIP=ip, **OTHER_PORT)
    await cloud.ensure(both[1], node)
    left = await asyncio.gather(*(delete(cloud, it) for it in both), return_exceptions=True)
    for asked, error in zip(both, left, strict=True):
        assert isinstance(error, CloudError | None), error
        if error:
            await delete(cloud, asked)
    assert addresses(lab) == {}
