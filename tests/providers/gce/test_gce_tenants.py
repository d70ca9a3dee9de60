"""What tenants and kubelets write costs no other Service its address or its Nodes."""

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from ccm.cloud.testkit.harness import node, port, service
from ccm.errors import CloudError, ImplementedElsewhere, Refused
from ccm.model.objects import Json
from ccm.model.service import PROXY_NAME, PROXY_OPTIONS, UNPROXIED, Service
from ccm.providers.gce.config import Place
from ccm.providers.gce.lb.observed import ADDRESS, RULE, Kind, Work
from ccm.providers.gce.lb.request import BACKEND_SERVICES, SUBNET, TIER, TYPE
from tests.labs.gce.project import PROJECT, REGION, ZONES
from tests.labs.gce.server import Gce
from tests.providers.gce.balancers import (
    NAME,
    delete,
    ensure,
    hosts,
    left,
    local,
    only,
    parts_of,
    tagged_hosts,
    web,
)
from tests.providers.gce.conftest import Start, Started, host
from tests.support.waiting import until

IP = "198.18.9.9"


@pytest.mark.parametrize(
    ("kind", "annotations"),
    [({}, {}), ({"addressType": "INTERNAL"}, {TYPE: "Internal"})],
    ids=["external", "internal"],
)
async def test_an_address_that_is_held_for_another_service_is_refused(
    gce: Gce, cloud: Started, kind: dict[str, Any], annotations: dict[str, str]
) -> None:
    """While a rule is replaced, its address is reserved and has no user."""
    held = {
        "address": IP,
        "addressType": "EXTERNAL",
        "networkTier": "PREMIUM",
        "status": "RESERVED",
        "description": '{"kubernetes.io/service-name":"default/other"}',
    }
    gce.cloud.put(f"projects/{PROJECT}/regions/{REGION}/addresses/a1", "address", **held | kind)
    with pytest.raises(Refused, match="another Service"):
        await ensure(cloud, web(loadBalancerIP=IP, annotations=annotations), *hosts(gce))
    assert gce.writes() == []


async def test_a_reserved_address_stays_its_services_while_a_rule_is_replaced(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no user then, and no mark: a person has reserved it."""
    reserved = {"addressType": "EXTERNAL", "networkTier": "PREMIUM", "status": "RESERVED"}
    path = f"projects/{PROJECT}/regions/{REGION}/addresses/kept"
    gce.cloud.put(path, "address", address=IP, **reserved)
    nodes, parts = hosts(gce), parts_of(cloud)._parts
    await ensure(cloud, web(loadBalancerIP=IP), *nodes)
    other = service("other", ports=[port(443, node_port=30443)], loadBalancerIP=IP)
    create, refused = parts.create, list[str]()

    async def create_later(place: Place, kind: Kind, body: Json) -> None:
        if (kind, body["name"]) == (RULE, NAME):
            with pytest.raises(Refused, match="in use by another load balancer") as error:
                await ensure(cloud, other, *nodes)
            refused.append(str(error.value))
        await create(place, kind, body)

    monkeypatch.setattr(parts, "create", create_later)
    await ensure(cloud, web(80, 443, loadBalancerIP=IP), *nodes)
    assert refused
    elsewhere = web(80, 443, annotations={BACKEND_SERVICES: "enabled"}, loadBalancerIP=IP)
    await delete(cloud, elsewhere)
    await ensure(cloud, other, *nodes)


@pytest.mark.parametrize("ip", ["10.0.0.0/8", "0.0.0.0/0", "fd00::1", "a-machine", ""])
@pytest.mark.parametrize("is_held", [False, True])
async def test_a_requested_ip_opens_no_port_of_the_machines(
    gce: Gce, cloud: Started, ip: str, is_held: bool
) -> None:
    """Its firewall is there before Google sees the forwarding rule; empty is a machine's own."""
    nodes = hosts(gce)
    if is_held:  # by a load balancer that Google would not make
        gce.fault("regionBackendServices.insert", status=400, reason="invalid")
        with pytest.raises(CloudError):
            await ensure(cloud, web(22, annotations={TYPE: "Internal"}), *nodes)
        assert only(gce, "addresses")["status"] == "RESERVED"
    asked = ip or gce.cloud.named("instances")["n-0"]["networkInterfaces"][0]["networkIP"]
    with pytest.raises(Refused, match="is not an IPv4 address" if ip else "in use by .*/n-0"):
        await ensure(cloud, web(22, loadBalancerIP=asked, annotations={TYPE: "Internal"}), *nodes)
    held = {record["address"] for record in gce.cloud.named("addresses").values()}
    assert asked not in held
    assert opened(gce) == []


def opened(gce: Gce) -> list[str]:
    """The addresses to which the Service's own traffic is admitted."""
    rule = gce.cloud.named("firewalls").get(f"k8s-fw-{NAME}", {})
    return list(rule.get("destinationRanges", ()))


async def test_only_an_address_that_is_held_is_opened(gce: Gce, cloud: Started) -> None:
    """Google may give any other to a new machine."""
    nodes, internal = hosts(gce), {TYPE: "Internal"}
    for ip in ("10.132.9.8", "10.132.9.7"):
        gce.fault("regionBackendServices.insert", status=400, reason="invalid")
        with pytest.raises(CloudError):
            await ensure(cloud, web(22, loadBalancerIP=ip, annotations=internal), *nodes)
        assert only(gce, "addresses")["address"] == ip
        assert opened(gce) == []
    with pytest.raises(Refused, match="another network tier or subnetwork"):
        await ensure(cloud, web(23, loadBalancerIP="10.132.9.7"), *nodes)
    assert only(gce, "addresses")["address"] == "10.132.9.7"
    assert opened(gce) == []


async def test_an_address_that_was_held_is_closed_before_it_is_given_up(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless its rule has it."""
    nodes, parts = hosts(gce), parts_of(cloud)._parts
    remove, open_then = parts.delete, list[str]()

    async def remove_and_look(place: Place, kind: Kind, name: str) -> bool:
        if kind is ADDRESS:
            given_up = {one["address"] for one in gce.cloud.named("addresses").values()}
            kept = {one["IPAddress"] for one in gce.cloud.named("forwardingRules").values()}
            open_then.extend((given_up - kept) & {*opened(gce)})
        return await remove(place, kind, name)

    monkeypatch.setattr(parts, "delete", remove_and_look)
    for tier in ("Premium", "Standard"):
        gce.fault("targetPools.insert", status=400, reason="invalid")
        with pytest.raises(CloudError):
            await ensure(cloud, web(22, annotations={TIER: tier}), *nodes)
        assert opened(gce) == [only(gce, "addresses")["address"]]
    await ensure(cloud, web(22, annotations={TIER: "Standard"}), *nodes)
    gce.fault("forwardingRules.delete", status=503)
    with pytest.raises(CloudError):
        await ensure(cloud, web(22, annotations={TIER: "Premium"}), *nodes)
    (ingress,) = (await ensure(cloud, web(22, annotations={TIER: "Standard"}), *nodes)).ingress
    assert opened(gce) == [ingress.ip]
    assert open_then == []


@pytest.mark.parametrize("how", ["subnetwork", "reservation", "own address"])
async def test_an_address_of_another_network_opens_no_port_of_the_machines(
    gce: Gce, cloud: Started, how: str
) -> None:
    """There it is free, also where it is a machine's here: networks may have the same ranges."""
    nodes, at, annotations = hosts(gce), f"projects/{PROJECT}", {TYPE: "Internal"}
    network = gce.cloud.put(f"{at}/global/networks/other", "network")["selfLink"]
    path = f"{at}/regions/{REGION}/subnetworks/other"
    there = gce.cloud.put(path, "subnetwork", network=network, ipCidrRange="10.132.0.0/20")
    ip = gce.cloud.named("instances")["n-0"]["networkInterfaces"][0]["networkIP"]
    if how == "own address":
        (ingress,) = (await ensure(cloud, web(22, annotations=annotations), *nodes)).ingress
        ip = ingress.ip
        assert opened(gce) == [ip]
    if how == "reservation":
        kind = {"addressType": "INTERNAL", "status": "RESERVED", "subnetwork": there["selfLink"]}
        gce.cloud.put(f"{at}/regions/{REGION}/addresses/kept", "address", address=ip, **kind)
    else:
        annotations[SUBNET] = "other"
    with pytest.raises(CloudError):
        await ensure(cloud, web(22, loadBalancerIP=ip, annotations=annotations), *nodes)
    assert opened(gce) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({TYPE: "Internal"}, {TYPE: "Internal", SUBNET: "second"}),
        ({}, {TIER: "Standard"}),
    ],
    ids=["internal", "external"],
)
async def test_an_address_is_closed_before_its_rule_goes(
    gce: Gce,
    cloud: Started,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, str],
    after: dict[str, str],
) -> None:
    """Google may give it to a new machine; where no other is had, all stays as it is."""
    nodes, parts = hosts(gce), parts_of(cloud)._parts
    path = f"projects/{PROJECT}/regions/{REGION}/subnetworks/second"
    gce.cloud.put(path, "subnetwork", ipCidrRange="10.133.0.0/20")
    (first,) = (await ensure(cloud, web(22, annotations=before), *nodes)).ingress
    gce.fault("addresses.insert", status=400, reason="invalid", message="not in its range")
    there = deepcopy(gce.cloud.objects)
    with pytest.raises(Refused, match="not in its range"):
        await ensure(cloud, web(22, annotations=after), *nodes)
    assert gce.cloud.objects == there
    remove, open_then = parts.delete, list[list[str]]()

    async def remove_and_look(place: Place, kind: Kind, name: str) -> bool:
        if kind is RULE:
            open_then.append(opened(gce))
        return await remove(place, kind, name)

    monkeypatch.setattr(parts, "delete", remove_and_look)
    (second,) = (await ensure(cloud, web(22, annotations=after), *nodes)).ingress
    assert [first.ip in addresses for addresses in open_then] == [False]
    assert opened(gce) == [second.ip]


@pytest.mark.parametrize("annotations", [{}, {TYPE: "Internal"}], ids=["external", "internal"])
async def test_an_address_is_closed_before_a_deletion_gives_it_up(
    gce: Gce, cloud: Started, annotations: dict[str, str]
) -> None:
    """Another's rule may lead to the pool or the backend service, so that no deletion ends."""
    asked = web(22, annotations=annotations)
    await ensure(cloud, asked, *hosts(gce))
    (rule,) = gce.cloud.named("forwardingRules").values()
    others = {**rule, "name": "others", "IPAddress": "198.18.9.9"}
    gce.cloud.objects[f"projects/{PROJECT}/regions/{REGION}/forwardingRules/others"] = others
    with pytest.raises(CloudError, match="is in use"):
        await delete(cloud, asked)
    assert [*gce.cloud.named("forwardingRules")] == ["others"]
    assert opened(gce) == []


async def test_an_address_that_is_asked_for_is_its_services_before_anything_is_written(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it held before is given up first, which takes seconds."""
    reserved = {"addressType": "EXTERNAL", "networkTier": "STANDARD", "status": "RESERVED"}
    path = f"projects/{PROJECT}/regions/{REGION}/addresses/kept"
    gce.cloud.put(path, "address", address=IP, **reserved)
    nodes, parts = hosts(gce), parts_of(cloud)._parts
    gce.fault("targetPools.insert", status=400, reason="invalid")
    with pytest.raises(CloudError):
        await ensure(cloud, web(), *nodes)
    asked: dict[str, Any] = {"loadBalancerIP": IP, "annotations": {TIER: "Standard"}}
    other = service("other", ports=[port(443, node_port=30443)], **asked)
    remove, refused = parts.delete, list[str]()

    async def remove_later(place: Place, kind: Kind, name: str) -> bool:
        if not refused:
            with pytest.raises(Refused, match="in use by another load balancer") as error:
                await ensure(cloud, other, *nodes)
            refused.append(str(error.value))
        return await remove(place, kind, name)

    monkeypatch.setattr(parts, "delete", remove_later)
    await ensure(cloud, web(**asked), *nodes)
    assert refused


async def test_a_copy_of_the_cluster_under_another_id_takes_no_load_balancer(
    gce: Gce, start: Start
) -> None:
    """As from a backup: its Services have the same UIDs, from which all parts have names."""
    first = await start()
    nodes = hosts(gce)
    await ensure(first, web(), *nodes)
    before = deepcopy(gce.cloud.objects)

    async def keep(namespace: str, name: str, data: Any) -> Any:
        return {"uid": "another"}

    copy = await start(keep_config_map=keep)
    with pytest.raises(Refused, match=r"is of the cluster [0-9a-f]{16}: .* ConfigMap"):
        await ensure(copy, web(), *nodes[:1])
    with pytest.raises(Refused, match="is of the cluster"):
        await parts_of(copy).update_nodes(web(), nodes[:1])
    with pytest.raises(Refused, match="is of the cluster"):
        await delete(copy, web())
    assert gce.cloud.objects == before


async def test_a_description_of_anybody_hides_no_load_balancer(gce: Gce, cloud: Started) -> None:
    """Anyone with the right to make a rule in the project writes a description of brackets."""
    await ensure(cloud, web(), *hosts(gce))
    rule = {**only(gce, "forwardingRules"), "name": "a0", "description": "[" * 2000}
    gce.cloud.objects[f"projects/{PROJECT}/regions/{REGION}/forwardingRules/a0"] = rule
    assert [item.name for item in await parts_of(cloud).owned()] == [NAME]


async def test_a_new_service_takes_no_zone_that_is_not_reached_out_of_health_checks(
    gce: Gce, start: Start
) -> None:
    """All load balancers have one check: without its probes the instances of the zone are lost."""
    cloud = await start("node-tags = ")
    nodes = tagged_hosts(gce, 2)
    await ensure(cloud, web(), *nodes)
    gce.cloud.unreachable.add(ZONES[1])
    await ensure(cloud, service("other", ports=[port(81, node_port=30081)]), *nodes)
    firewalls = gce.cloud.named("firewalls")
    (shared,) = (name for name in firewalls if name.endswith("-node-http-hc"))
    assert firewalls[shared]["targetTags"] == ["n-0", "n-1"]


async def test_a_service_that_is_made_while_the_last_one_goes_has_its_health_check(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read while the shared check is being deleted still has it."""
    nodes, lbs = hosts(gce), parts_of(cloud)
    await ensure(cloud, web(), *nodes)
    other, made = service("other", ports=[port(81, node_port=30081)]), list[asyncio.Task[Any]]()
    parts = lbs._parts
    remove = parts.delete

    async def remove_later(place: Place, kind: Kind, name: str) -> bool:
        if name.endswith("-node") and not made:
            made.append(asyncio.create_task(ensure(cloud, other, *nodes)))
            await until(lambda: any(lbs._shared._making.values()), "the other is being made")
        return await remove(place, kind, name)

    monkeypatch.setattr(parts, "delete", remove_later)
    await delete(cloud, web())
    await made[0]
    (check,) = gce.cloud.named("httpHealthChecks")
    assert only(gce, "targetPools")["healthChecks"][0].endswith(check)


@pytest.mark.parametrize("kind", [{}, {TYPE: "Internal"}], ids=["external", "internal"])
async def test_who_never_had_a_load_balancer_keeps_no_other_from_one_by_its_deletion(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch, kind: dict[str, str]
) -> None:
    """It comes after each read of the other; that it was internal is only annotated."""
    nodes, lbs = hosts(gce), parts_of(cloud)
    look, never = lbs._look, service("other", {TYPE: "Internal"})

    async def look_then_delete(asked: Service) -> Work:
        work = await look(asked)
        if asked.name != never.name:
            await delete(cloud, never)
        return work

    monkeypatch.setattr(lbs, "_look", look_then_delete)
    await ensure(cloud, web(annotations=kind), *nodes)
    assert gce.names().count("forwardingRules.list") == 2


async def test_who_never_had_a_load_balancer_deletes_no_groups(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be new ones of Google's Ingress controller, and all wait for who deletes them."""

    def wait_for_all() -> None:
        raise AssertionError("it keeps all others waiting")

    nodes = hosts(gce)
    await ensure(cloud, local(annotations={TYPE: "Internal"}), *nodes)
    monkeypatch.setattr(parts_of(cloud)._shared._deleting, "held", wait_for_all)
    gce.calls.clear()
    await delete(cloud, service("other", {TYPE: "Internal"}))
    assert gce.writes() == []


async def test_the_last_of_several_that_leave_at_the_same_time_takes_the_groups(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has read still has another that used the shared check."""
    nodes, lbs, internal = hosts(gce), parts_of(cloud), {TYPE: "Internal"}
    first, last = service("first", internal), local(annotations=internal)
    for asked in (first, last):
        await ensure(cloud, asked, *nodes)
    look = lbs._look

    async def look_then_delete(asked: Service) -> Work:
        work = await look(asked)
        if asked is last:
            await delete(cloud, first)
        return work

    monkeypatch.setattr(lbs, "_look", look_then_delete)
    await delete(cloud, last)
    assert left(gce) == []


async def test_what_a_broken_off_creation_left_of_groups_is_deleted(
    gce: Gce, cloud: Started
) -> None:
    """Before its backend service, of which nothing is there then."""
    asked = web(annotations={TYPE: "Internal"})
    gce.fault("regionBackendServices.insert", status=503)
    with pytest.raises(CloudError):
        await ensure(cloud, asked, *hosts(gce))
    assert "instanceGroups" in {one.partition("/")[0] for one in left(gce)}
    await delete(cloud, asked)
    assert left(gce) == []


@pytest.mark.parametrize("asked", [local(), web()], ids=["local", "cluster"])
async def test_what_a_broken_off_deletion_left_of_groups_is_deleted(
    gce: Gce, start: Start, asked: Service
) -> None:
    """By another process as well: a part that goes after them shows that they are there."""
    asked.raw["metadata"]["annotations"] = {TYPE: "Internal"}
    cloud = await start()
    await ensure(cloud, asked, *hosts(gce))
    gce.fault("instanceGroups.delete", status=503)
    with pytest.raises(CloudError):
        await delete(cloud, asked)
    assert "instanceGroups" in {one.partition("/")[0] for one in left(gce)}
    await delete(await start(), asked)
    assert left(gce) == []


async def test_who_gives_up_its_backends_takes_no_members_of_groups_from_others(
    gce: Gce, cloud: Started
) -> None:
    """All internal load balancers have the same groups."""
    nodes, asked = hosts(gce), web(annotations={TYPE: "Internal"})
    await ensure(cloud, asked, *nodes)
    before = deepcopy(gce.cloud.members)
    assert any(before.values())
    balancers: Any = cloud.load_balancers
    await balancers.withdraw(asked)
    assert gce.cloud.members == before


@pytest.mark.parametrize("kind", [{}, {TYPE: "Internal"}], ids=["external", "internal"])
async def test_a_health_check_of_ones_own_is_made_beside_all_others(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch, kind: dict[str, str]
) -> None:
    """Google takes seconds for each, so that 40 in turns would be minutes for everybody."""

    def wait_for_all() -> None:
        raise AssertionError("it waits for what others write to shared parts")

    monkeypatch.setattr(parts_of(cloud)._shared._deleting, "held", wait_for_all)
    await ensure(cloud, local(annotations=kind), *hosts(gce))
    assert len(gce.cloud.named("forwardingRules")) == 1


async def test_a_deletion_takes_no_groups_of_who_is_being_made(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing refers to them before the first internal backend service is there."""
    nodes, services = hosts(gce), parts_of(cloud)._services
    other = local(annotations={TYPE: "Internal"})
    other.raw["metadata"] |= {"name": "other", "uid": "other"}
    await ensure(cloud, other, *nodes)
    fill = services.set_instances

    async def fill_then_delete(*args: Any) -> None:
        await fill(*args)
        await delete(cloud, other)

    monkeypatch.setattr(services, "set_instances", fill_then_delete)
    await ensure(cloud, local(annotations={TYPE: "Internal"}), *nodes)
    assert len(only(gce, "backendServices")["backends"]) == 3


@pytest.mark.parametrize("name", ["projects/other/regions/r/subnetworks/s", "../../global/x", "S"])
async def test_a_subnetwork_is_a_name(gce: Gce, cloud: Started, name: str) -> None:
    asked = web(annotations={TYPE: "Internal", SUBNET: name})
    with pytest.raises(Refused, match="subnet"):
        await ensure(cloud, asked, *hosts(gce))
    assert gce.writes() == []


async def test_a_node_in_another_region_keeps_no_other_out(gce: Gce, cloud: Started) -> None:
    """Networks are global: a kubelet may name a machine that no pool of the region takes."""
    far = host(gce.cloud.add_instance("far", "us-east1-b"))
    near = hosts(gce, 2)
    await ensure(cloud, web(), far, *near)
    members = only(gce, "targetPools")["instances"]
    assert [one.rpartition("/")[2] for one in members] == ["n-0", "n-1"]
    await ensure(cloud, web(annotations={TYPE: "Internal"}), far, *near)
    assert len(only(gce, "backendServices")["backends"]) == 2


async def test_a_node_without_a_network_tag_keeps_no_other_out(gce: Gce, start: Start) -> None:
    cloud = await start("node-tags = ")
    bad, good = hosts(gce, 2)
    for name, tags in (("n-0", ["x"]), ("n-1", ["n"])):
        gce.cloud.named("instances")[name]["tags"] = {"items": tags}
    made = await ensure(cloud, web(), bad, good)
    assert gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]["targetTags"] == ["n"]
    assert any(f"{ZONES[0]}/n-0 has no network tag" in one for one in made.warnings)
    with pytest.raises(CloudError, match="set node-tags"):
        await ensure(cloud, web(), bad)


@pytest.mark.parametrize("kind", [{}, {TYPE: "Internal"}], ids=["external", "internal"])
@pytest.mark.parametrize(
    "place", [f"other/{ZONES[0]}", f"{PROJECT}/{REGION}-zz", f"{PROJECT}/{ZONES[0]}"]
)
async def test_a_node_on_what_is_nowhere_keeps_no_other_out(
    gce: Gce, cloud: Started, kind: dict[str, str], place: str
) -> None:
    """Of another project, in a zone that there is not, or gone."""
    odd, near = node("odd", f"gce://{place}/odd"), hosts(gce, 2)
    await ensure(cloud, web(annotations=kind), odd, *near)
    behind = (
        only(gce, "backendServices")["backends"] if kind else only(gce, "targetPools")["instances"]
    )
    assert len(behind) == 2


async def test_an_address_that_is_asked_for_no_more_is_kept_from_no_one(
    gce: Gce, cloud: Started
) -> None:
    """Google refused it to the one, who asks for another that it cannot have either."""
    reserved = {"addressType": "EXTERNAL", "networkTier": "PREMIUM", "status": "RESERVED"}
    path = f"projects/{PROJECT}/regions/{REGION}/addresses/kept"
    gce.cloud.put(path, "address", address=IP, **reserved)
    nodes = hosts(gce)
    gce.fault("forwardingRules.insert", status=400, reason="invalid")
    with pytest.raises(CloudError):
        await ensure(cloud, web(loadBalancerIP=IP), *nodes)
    with pytest.raises(Refused, match="is not a reserved address"):
        await ensure(cloud, web(loadBalancerIP="198.18.9.8"), *nodes)
    await ensure(cloud, service("other", loadBalancerIP=IP), *nodes)


async def test_a_change_of_kind_that_google_refuses_leaves_nothing_that_is_shown(
    gce: Gce, cloud: Started
) -> None:
    """So its former address, which is free by then, leaves the status."""
    nodes = hosts(gce)
    await ensure(cloud, web(), *nodes)
    inner = web(annotations={TYPE: "Internal"}, loadBalancerIP="198.18.9.8")
    gce.fault("addresses.insert", status=400, reason="invalid")
    with pytest.raises(CloudError):
        await ensure(cloud, inner, *nodes)
    assert await parts_of(cloud).get(inner) is None


async def test_who_is_refused_while_the_last_one_goes_keeps_no_groups(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows them once that one's own health check has gone."""
    lbs, last = parts_of(cloud), local(annotations={TYPE: "Internal"})
    await ensure(cloud, last, *hosts(gce))
    refused = service("other", {TYPE: "Internal", SUBNET: "../x"})
    look = lbs._look

    async def look_then_delete(asked: Service) -> Work:
        work = await look(asked)
        if asked.name == refused.name:
            await delete(cloud, last)
        return work

    monkeypatch.setattr(lbs, "_look", look_then_delete)
    with pytest.raises(Refused):
        await ensure(cloud, refused, *hosts(gce))
    monkeypatch.setattr(lbs, "_look", look)
    await delete(cloud, refused)
    assert left(gce) == []


@pytest.mark.parametrize("kind", [{}, {TYPE: "Internal"}], ids=["external", "internal"])
@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ([22, 80], [["22", "80"]]),
        ([80], [["80"]]),
        ([23, 443], [["23"]]),
        ([8080], []),
    ],
)
async def test_a_port_that_a_refused_service_gave_up_leads_to_no_port_of_the_machines(
    gce: Gce, cloud: Started, asked: list[int], left: list[list[str]], kind: dict[str, str]
) -> None:
    """Nodes have the load balancer's address: kube-proxy hands on what the Service has alone."""
    nodes = hosts(gce)
    await ensure(cloud, web(22, 23, 80, annotations=kind), *nodes)
    refused = web(*asked, annotations={**kind, TIER: "none"})
    with pytest.raises(Refused):
        await ensure(cloud, refused, *nodes)
    await parts_of(cloud).update_nodes(refused, nodes)
    firewall = gce.cloud.named("firewalls").get(f"k8s-fw-{NAME}", {})
    assert [rule["ports"] for rule in firewall.get("allowed", ())] == left
    await ensure(cloud, web(*asked, annotations=kind), *nodes)
    assert gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]["allowed"]


async def test_a_port_that_is_given_up_with_a_load_balancer_leads_to_no_port_of_the_machines(
    gce: Gce, cloud: Started
) -> None:
    """As an annotation leaves the Service to another controller: what is there stays otherwise."""
    nodes, elsewhere = hosts(gce), {BACKEND_SERVICES: "enabled"}
    await ensure(cloud, web(22, 80), *nodes)
    for ports, open_ports in (((22, 80), ["22", "80"]), ((80, 443), ["80"])):
        with pytest.raises(ImplementedElsewhere):
            await ensure(cloud, web(*ports, annotations=elsewhere), *nodes)
        (rule,) = gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]["allowed"]
        assert rule["ports"] == open_ports


@pytest.mark.parametrize(("asked", "method"), [(80, "firewalls.update"), (443, "firewalls.delete")])
async def test_a_port_that_google_does_not_close_at_once_is_closed_later(
    gce: Gce, cloud: Started, asked: int, method: str
) -> None:
    """Where it counted as refused, nothing would close it before the Service changes again."""
    nodes = hosts(gce)
    await ensure(cloud, web(22, 80), *nodes)
    gce.fault(method, status=400, reason="invalid")
    with pytest.raises(CloudError) as error:
        await parts_of(cloud).update_nodes(web(asked), nodes)
    assert not isinstance(error.value, Refused)


@pytest.mark.parametrize(("annotation", "harmless"), PROXY_OPTIONS.items())
async def test_a_service_that_another_proxy_leaves_out_opens_no_port_of_the_machines(
    gce: Gce, cloud: Started, annotation: str, harmless: str | None
) -> None:
    nodes = hosts(gce)
    await ensure(cloud, web(22, annotations={annotation: harmless} if harmless else {}), *nodes)
    assert opened(gce)
    left_out = web(22, annotations={annotation: "ClusterIP"})
    with pytest.raises(Refused, match=r"remove it$"):
        await ensure(cloud, left_out, *nodes)
    await parts_of(cloud).update_nodes(left_out, nodes)
    assert opened(gce) == []


@pytest.mark.parametrize("label", UNPROXIED)
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_service_that_kube_proxy_leaves_out_opens_no_port_of_the_machines(
    gce: Gce, cloud: Started, label: str, is_there: bool
) -> None:
    nodes, left_out = hosts(gce), web(22)
    if is_there:
        await ensure(cloud, web(22), *nodes)
    left_out.raw["metadata"]["labels"] = {label: "none"}
    is_named = label == PROXY_NAME
    with pytest.raises(Refused, match="remove it" + ", or give .*=none" * is_named):
        await ensure(cloud, left_out, *nodes)
    if is_there:
        await parts_of(cloud).update_nodes(left_out, nodes)
    assert opened(gce) == []
