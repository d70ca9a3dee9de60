"""External load balancers: the parts, their order, what is replaced and what is only changed."""

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.errors import CloudError, ImplementedElsewhere, NoRoom, Refused, RetryAfter
from ccm.model.objects import Json
from ccm.model.service import Feature, Service
from ccm.providers.gce import api
from ccm.providers.gce.lb.names import derived_cluster_id
from ccm.providers.gce.lb.request import BACKEND_SERVICES, TIER, TYPE
from tests.labs.gce.project import HOST_PROJECT, PROJECT, REGION, ZONES
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
    published,
    tagged_hosts,
    web,
)
from tests.providers.gce.conftest import Start, Started, host

ID = derived_cluster_id("0c1b2d3e-0000-4000-8000-000000000001")
SHARED, SHARED_FIREWALL = f"k8s-{ID}-node", f"k8s-{ID}-node-http-hc"
PLAIN = sorted(
    [
        f"firewalls/k8s-fw-{NAME}",
        f"firewalls/{SHARED_FIREWALL}",
        f"forwardingRules/{NAME}",
        f"httpHealthChecks/{SHARED}",
        f"targetPools/{NAME}",
    ]
)
INSERTS = ["addresses", "firewalls", "httpHealthChecks", "targetPools", "forwardingRules"]


async def test_a_plain_service_gets_upstreams_parts_the_rule_last(gce: Gce, cloud: Started) -> None:
    """GC22, GC28: all between the lowest and the highest port is the rule's; the firewall is
    narrower.
    """
    made = await ensure(cloud, web(80, 443), *hosts(gce))
    assert left(gce) == PLAIN
    writes = gce.writes()
    assert writes[0] == "addresses.insert"
    assert writes[-3:] == ["targetPools.insert", "forwardingRules.insert", "addresses.delete"]
    rule, firewall = only(gce, "forwardingRules"), gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]
    (ingress,) = made.ingress
    assert (rule["IPAddress"], rule["portRange"]) == (ingress.ip, "80-443")
    assert firewall["description"] == (
        f'{{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"{ingress.ip}"}}'
    )
    assert firewall["allowed"] == [{"IPProtocol": "tcp", "ports": ["80", "443"]}]
    assert (firewall["sourceRanges"], firewall["targetTags"]) == (["0.0.0.0/0"], ["node"])
    check = only(gce, "httpHealthChecks")
    assert (check["port"], check["requestPath"], check["checkIntervalSec"]) == (
        10256,
        "/healthz",
        8,
    )


async def test_a_rule_that_a_list_lacks_is_not_left_behind(gce: Gce, cloud: Started) -> None:
    """Its pool is in use then."""
    await ensure(cloud, web(), *hosts(gce))

    def without_rules(answer: Any) -> Any:
        content, response = answer
        is_list = content.get("kind") == "compute#forwardingRuleList"
        return ({**content, "items": []} if is_list else content), response

    cloud.gate.spoil = without_rules
    with pytest.raises(CloudError, match=f"targetPools {NAME} is in use"):
        await delete(cloud, web())
    cloud.gate.spoil = None
    await delete(cloud, web())
    assert left(gce) == []


@pytest.mark.parametrize("field", ["items", "IPAddress"])
async def test_a_list_that_lacks_a_published_rule_cuts_no_one_off(
    gce: Gce, cloud: Started, field: str
) -> None:
    """Its firewall would be moved to another address, or the rule would be made again with one."""
    nodes = hosts(gce)
    (ingress,) = (await ensure(cloud, web(), *nodes)).ingress
    asked, before = published(web(), str(ingress.ip)), deepcopy(gce.cloud.objects)

    def without_rules(answer: Any) -> Any:
        content, response = answer
        if content.get("kind") == "compute#forwardingRuleList":
            rules = [{**rule, "IPAddress": ""} for rule in content["items"]]
            content = {**content, "items": rules if field == "IPAddress" else []}
        return content, response

    cloud.gate.spoil = without_rules
    with pytest.raises(CloudError, match=f"the answer lacks {NAME}"):
        await ensure(cloud, asked, *nodes)
    assert gce.cloud.objects == before
    cloud.gate.spoil = None
    del gce.cloud.objects[f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{NAME}"]
    await ensure(cloud, asked, *nodes)
    assert left(gce) == PLAIN


@pytest.mark.parametrize("collection", INSERTS)
@pytest.mark.parametrize("how", [{"status": 503}, {"drop": "before"}])
async def test_what_was_broken_off_is_finished_or_leaves_nothing(
    gce: Gce, cloud: Started, collection: str, how: dict[str, Any]
) -> None:
    """GC23, GC60."""
    nodes = hosts(gce)
    for finish in (True, False):
        times = (1 + ("drop" in how)) * (1 + (collection == "firewalls"))
        gce.fault(f"{collection}.insert", **how, times=times)
        with pytest.raises(CloudError):
            await ensure(cloud, web(), *nodes)
        if finish:
            await ensure(cloud, web(), *nodes)
            assert left(gce) == PLAIN
        await delete(cloud, web())
        assert left(gce) == []


async def test_a_lost_answer_is_asked_for_again(gce: Gce, cloud: Started) -> None:
    """GC24: with the same ID, of which Google makes one operation."""
    for collection in INSERTS:
        gce.fault(f"{collection}.insert", drop="after")
    await ensure(cloud, web(), *hosts(gce))
    assert left(gce) == PLAIN
    ids = [one.query["requestId"][0] for one in gce.calls if one.name == "addresses.insert"]
    assert len(ids) == 2
    assert len({*ids}) == 1


async def test_a_full_quota_is_named_and_leaks_nothing(gce: Gce, cloud: Started) -> None:
    """GC25."""
    gce.fault(
        "forwardingRules.insert",
        when="operation",
        status=403,
        reason="QUOTA_EXCEEDED",
        message="Quota 'FORWARDING_RULES' exceeded.",
    )
    with pytest.raises(NoRoom, match="QUOTA_EXCEEDED Quota 'FORWARDING_RULES'"):
        await ensure(cloud, web(), *hosts(gce))
    gce.cloud.objects.pop(f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{NAME}", None)
    await delete(cloud, web())
    assert left(gce) == []


async def test_long_operations_are_waited_for_beside_others(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GC26, GC27: an answer that it still runs is no end; what takes too long goes on later."""
    monkeypatch.setattr(api, "POLLS", (0.01, 0.02))
    gce.cloud.operation_delay = 0.1
    nodes = hosts(gce)
    await asyncio.gather(*(ensure(cloud, service(f"web-{at}"), *nodes) for at in range(3)))
    assert len(gce.cloud.named("forwardingRules")) == 3
    assert gce.names().count("regionOperations.get") > 3 * 4
    gce.cloud.operation_delay = 3600.0
    monkeypatch.setattr(api, "POLL_LIMIT", 0.02)
    with pytest.raises(RetryAfter, match="is under way"):
        await parts_of(cloud).ensure(web(), nodes)


def test_two_protocols_are_refused_before() -> None:
    """GC29: upstream's condition is not written; the Event is."""
    assert Feature.MIXED_PROTOCOLS not in parts_of.__annotations__["return"].supported_features


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        (web(80, 81), "targetPools"),
        (web(80, sessionAffinity="ClientIP"), "httpHealthChecks"),
        (web(ports=[port(80, "UDP")]), "targetPools"),
    ],
    ids=["GC30", "GC31", "protocol"],
)
async def test_a_rule_is_replaced_and_keeps_its_address(
    gce: Gce, cloud: Started, changed: Service, kept: str
) -> None:
    nodes = hosts(gce)
    before = await ensure(cloud, web(), *nodes)
    there = only(gce, kept)["id"]
    assert (await ensure(cloud, changed, *nodes)).ingress == before.ingress
    assert left(gce) == PLAIN
    assert only(gce, kept)["id"] == there
    gce.calls.clear()
    await ensure(cloud, changed, *nodes)
    assert gce.writes() == []


async def test_the_health_check_follows_the_policy(gce: Gce, cloud: Started) -> None:
    """GC32: the pool and the rule stay."""
    nodes = hosts(gce)
    await ensure(cloud, web(), *nodes)
    pool = only(gce, "targetPools")["id"]
    await ensure(cloud, local(), *nodes)
    own = [f"firewalls/k8s-{NAME}-http-hc", f"httpHealthChecks/{NAME}"]
    shared = [f"firewalls/{SHARED_FIREWALL}", f"httpHealthChecks/{SHARED}"]
    assert left(gce) == sorted({*PLAIN, *own} - {*shared})
    assert only(gce, "httpHealthChecks")["port"] == 32000
    await ensure(cloud, web(), *nodes)
    assert left(gce) == PLAIN
    assert only(gce, "targetPools")["id"] == pool


async def test_a_large_pool_is_filled_in_two_steps(gce: Gce, cloud: Started) -> None:
    """GC33, GC34: a change of Nodes is one call for those that come, and one for those that go."""
    nodes = hosts(gce, 250)
    await ensure(cloud, web(), *nodes)
    assert len(only(gce, "targetPools")["instances"]) == 250
    assert [len(one["instances"]) for one in gce.bodies("targetPools.insert")] == [200]
    gce.calls.clear()
    await parts_of(cloud).update_nodes(web(), nodes[5:])
    await parts_of(cloud).update_nodes(web(), nodes[2:])
    assert gce.writes() == ["targetPools.removeInstance", "targetPools.addInstance"]
    assert len(only(gce, "targetPools")["instances"]) == 248


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [(["n", "n-0", "x"], ["n-0"]), (["x"], []), ([], [])],
    ids=["the longest that the name begins with", "GC35", "none"],
)
async def test_without_node_tags_those_of_the_nodes_count(
    gce: Gce, start: Start, tags: list[str], wanted: list[str]
) -> None:
    cloud = await start("node-tags = ")
    (node,) = hosts(gce, 1)
    gce.cloud.named("instances")["n-0"]["tags"] = {"items": tags}
    if wanted:
        await ensure(cloud, web(), node)
        assert gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]["targetTags"] == wanted
    else:
        with pytest.raises(CloudError, match="set node-tags"):
            await ensure(cloud, web(), node)


async def test_nodes_of_a_zone_that_is_not_reached_stay_behind_the_firewall(
    gce: Gce, start: Start
) -> None:
    """Their tags are not known then; they are taken away when the Nodes are gone."""
    cloud = await start("node-tags = ")
    nodes = [host(gce.cloud.add_instance(f"{zone}-node", zone)) for zone in ZONES[:2]]
    for zone in ZONES[:2]:
        gce.cloud.named("instances")[f"{zone}-node"]["tags"] = {"items": [zone]}
    await ensure(cloud, web(), *nodes)
    firewall = gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]
    for unreachable, some, tags in (
        ({ZONES[1]}, nodes, [*ZONES[:2]]),
        ({ZONES[1]}, nodes[:1], [ZONES[0]]),
        (set[str](), nodes, [*ZONES[:2]]),
    ):
        gce.cloud.unreachable = unreachable
        await ensure(cloud, web(), *some)
        assert firewall["targetTags"] == tags


@pytest.mark.parametrize("tags", [{}, {"items": ["n-0"]}])
async def test_an_instance_that_is_listed_without_tags_stays_behind_the_firewall(
    gce: Gce, start: Start, tags: Json
) -> None:
    """An answer may lack what is in its records, or have another's."""
    cloud = await start("node-tags = ")
    nodes = tagged_hosts(gce, 2)
    await ensure(cloud, web(), *nodes)
    gce.cloud.named("instances")["n-1"]["tags"] = tags
    await ensure(cloud, web(), *nodes)
    assert gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]["targetTags"] == ["n-0", "n-1"]


async def test_the_firewall_follows_the_source_ranges(gce: Gce, cloud: Started) -> None:
    """GC36, GC43: and goes back to them when someone edits it; what else he gave it stays."""
    nodes = hosts(gce)
    firewalls = gce.cloud.named
    for ranges in (["192.0.2.0/24"], []):
        await ensure(cloud, web(loadBalancerSourceRanges=ranges), *nodes)
        found = firewalls("firewalls")[f"k8s-fw-{NAME}"]
        assert found["sourceRanges"] == (ranges or ["0.0.0.0/0"])
    found |= {"sourceRanges": ["10.0.0.0/8"], "priority": 900}
    await ensure(cloud, web(), *nodes)
    found = firewalls("firewalls")[f"k8s-fw-{NAME}"]
    assert (found["sourceRanges"], found["priority"]) == (["0.0.0.0/0"], 900)


@pytest.mark.parametrize("kind", [{}, {TYPE: "Internal"}], ids=["external", "internal"])
@pytest.mark.parametrize("before", [[80], [22, 443]])
@pytest.mark.parametrize("is_new", [False, True])
async def test_old_lists_close_no_port_as_nodes_change(
    gce: Gce, start: Start, is_new: bool, before: list[int], kind: dict[str, str]
) -> None:
    """By one from before a change, the firewall had ports alone that its Service has no longer."""
    nodes, asked, cloud = hosts(gce), web(443, 8443, annotations=kind), await start()
    await ensure(cloud, web(*before, annotations=kind), *nodes)
    old = [*deepcopy(gce.cloud.named("firewalls")).values()]
    await ensure(cloud, asked, *nodes)
    firewalls = deepcopy(gce.cloud.named("firewalls"))
    cloud = await start() if is_new else cloud
    lists = [old] if is_new else [old] * 9

    def outdated(answer: Any) -> Any:
        content, response = answer
        if content.get("kind") == "compute#firewallList" and lists:
            content = {**content, "items": lists.pop()}
        return content, response

    cloud.gate.spoil = outdated
    if is_new:
        with pytest.raises(CloudError, match="two answers"):
            await parts_of(cloud).update_nodes(asked, nodes[1:])
    await parts_of(cloud).update_nodes(asked, nodes[1:])
    assert gce.cloud.named("firewalls") == firewalls


@pytest.mark.parametrize(
    ("kind", "part"), [({}, "targetPool"), ({TYPE: "Internal"}, "backendService")]
)
async def test_a_node_that_joins_while_a_list_lacks_the_backends_joins_later(
    gce: Gce, cloud: Started, kind: dict[str, str], part: str
) -> None:
    """It counted as done, and the Node was nowhere for half an hour."""
    nodes, asked = hosts(gce), web(annotations=kind)
    await ensure(cloud, asked, *nodes[:2])

    def lacking(answer: Any) -> Any:
        content, response = answer
        is_it = content.get("kind") == f"compute#{part}List"
        return ({**content, "items": []} if is_it else content), response

    cloud.gate.spoil = lacking
    with pytest.raises(CloudError):
        await parts_of(cloud).update_nodes(asked, nodes)


async def test_whoever_may_not_change_the_shared_vpc_says_how(gce: Gce, start: Start) -> None:
    """GC37: the load balancer is made, and the Event has the command."""
    cloud = await start(f"network-project-id = {HOST_PROJECT}")
    gce.fault(r"firewalls\..*", status=403, reason="forbidden", times=99)
    gce.faults[0]["match"] = "firewalls.(insert|update|delete)"
    made = await ensure(cloud, web(), *hosts(gce))
    assert made.ingress
    (command,) = [one for one in made.warnings if f"create k8s-fw-{NAME}" in one]
    assert "--allow=tcp:80" in command
    assert f"--project={HOST_PROJECT}" in command
    await delete(cloud, web())
    assert left(gce) == []


async def reserve(gce: Gce, **more: Any) -> Json:
    at = f"projects/{PROJECT}/regions/{REGION}/addresses/mine"
    usual = {"address": "198.18.9.9", "addressType": "EXTERNAL", "networkTier": "PREMIUM"}
    return gce.cloud.put(at, "address", **(usual | {"status": "RESERVED"} | more))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"networkTier": "STANDARD"}, "another network tier"),
        ({"users": ["projects/lab/regions/europe-west1/forwardingRules/other"]}, "in use"),
        ({"address": "198.18.9.8"}, "not a reserved address"),
    ],
)
async def test_a_reserved_address_may_be_asked_for(
    gce: Gce, cloud: Started, more: dict[str, Any], why: str
) -> None:
    """GC38: it is never released."""
    await reserve(gce, **more)
    nodes, asked = hosts(gce), web(loadBalancerIP="198.18.9.9")
    if why:
        with pytest.raises(Refused, match=why):
            await ensure(cloud, asked, *nodes)
        return
    await ensure(cloud, web(), *nodes)
    made = await ensure(cloud, asked, *nodes)
    assert made.ingress[0].ip == "198.18.9.9"
    gce.calls.clear()
    await ensure(cloud, asked, *nodes)
    assert gce.writes() == []
    await delete(cloud, asked)
    assert left(gce) == ["addresses/mine"]


async def test_another_tier_is_another_address(gce: Gce, cloud: Started) -> None:
    """GC39: the annotation's removal alone changes nothing."""
    nodes = hosts(gce)
    first = await ensure(cloud, web(), *nodes)
    standard = await ensure(cloud, web(annotations={TIER: "Standard"}), *nodes)
    assert standard.ingress != first.ingress
    assert only(gce, "forwardingRules")["networkTier"] == "STANDARD"
    assert (await ensure(cloud, web(), *nodes)).ingress == standard.ingress
    assert left(gce) == PLAIN
    with pytest.raises(Refused, match="Premium or Standard"):
        await ensure(cloud, web(annotations={TIER: "standard"}), *nodes)


@pytest.mark.parametrize(
    "meta",
    [
        {"annotations": {BACKEND_SERVICES: "enabled"}},
        {"finalizers": ["gke.networking.io/l4-netlb-v2"]},
        {"finalizers": ["gke.networking.io/l4-netlb-v3"]},
        {"finalizers": ["gke.networking.io/l4-ilb-v2"]},
    ],
)
async def test_services_of_the_ingress_controller_are_left_to_it(
    gce: Gce, cloud: Started, meta: Mapping[str, Any]
) -> None:
    """GC40."""
    asked = web()
    asked.raw["metadata"] |= meta
    for work in (ensure(cloud, asked), delete(cloud, asked)):
        with pytest.raises(ImplementedElsewhere):
            await work
    assert gce.writes() == []


async def test_what_upstream_made_is_taken_over(gce: Gce, cloud: Started) -> None:
    """GC41, GC59: nothing is written but the address in the firewall of the shared check, by which
    upstream lets in the probes of one Service alone.
    """
    nodes = hosts(gce)
    services = [service(f"web-{at}") for at in range(3)]
    for one in services:
        await ensure(cloud, one, *nodes)
    for collection in ("forwardingRules", "targetPools"):
        for name, record in gce.cloud.named(collection).items():
            (owner,) = [one for one in services if one.default_balancer_name == name]
            record["description"] = f'{{"kubernetes.io/service-name":"{owner.key}"}}'
    gce.calls.clear()
    for one in services:
        await ensure(cloud, one, *nodes)
    assert gce.writes() == []
    shared = gce.cloud.named("firewalls")[SHARED_FIREWALL]
    shared["destinationRanges"] = ["198.18.0.2/32"]
    for one in services:
        await ensure(cloud, one, *nodes)
    assert gce.writes() == ["firewalls.update"]
    assert "destinationRanges" not in gce.cloud.named("firewalls")[SHARED_FIREWALL]


async def test_what_refers_to_others_is_deleted_first(gce: Gce, cloud: Started) -> None:
    """GC44, GC45: the shared check stays for the others, and what is gone is no error."""
    nodes = hosts(gce)
    await ensure(cloud, web(), *nodes)
    await ensure(cloud, service("other"), *nodes)
    gce.calls.clear()
    gce.fault("targetPools.delete", status=404, reason="notFound")
    del gce.cloud.objects[f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{NAME}"]
    await delete(cloud, web())
    assert f"httpHealthChecks/{SHARED}" in left(gce)
    del gce.cloud.objects[f"projects/{PROJECT}/regions/{REGION}/targetPools/{NAME}"]
    gce.calls.clear()
    await delete(cloud, service("other"))
    assert left(gce) == []
    assert gce.writes() == [
        "firewalls.delete",
        "forwardingRules.delete",
        "targetPools.delete",
        "httpHealthChecks.delete",
        "firewalls.delete",
    ]


async def test_services_that_go_together_leave_nothing(gce: Gce, cloud: Started) -> None:
    nodes, services = hosts(gce), [service(f"web-{at}") for at in range(5)]
    await asyncio.gather(*(ensure(cloud, one, *nodes) for one in services))
    made = len(gce.calls)
    gce.calls.clear()
    await asyncio.gather(*(delete(cloud, one) for one in services))
    assert left(gce) == []
    assert (made, len(gce.calls)) <= (80, 50)


async def test_a_list_without_the_shared_check_closes_the_nodes_to_no_ones(
    gce: Gce, cloud: Started
) -> None:
    """Its firewall would be deleted, and no Node would be healthy for any load balancer."""
    nodes = hosts(gce)
    for name in ("web", "other"):
        await ensure(cloud, service(name), *nodes)
    gce.fault("httpHealthChecks.list", text='{"kind": "compute#httpHealthCheckList"}')
    await delete(cloud, service("other"))
    assert SHARED_FIREWALL in gce.cloud.named("firewalls")


@pytest.mark.parametrize(
    "meta",
    [
        {"annotations": {BACKEND_SERVICES: "enabled"}},
        {"finalizers": ["gke.networking.io/l4-netlb-v2"]},
    ],
    ids=["annotation", "finalizer"],
)
async def test_a_load_balancer_of_ours_is_deleted_though_another_controller_is_named_now(
    gce: Gce, cloud: Started, meta: Json
) -> None:
    """Both are the tenant's to write: each Service would leave a load balancer to nobody."""
    await ensure(cloud, web(), *hosts(gce))
    asked = web()
    asked.raw["metadata"] |= meta
    await delete(cloud, asked)
    assert left(gce) == []


@pytest.mark.parametrize(
    ("broken_off", "annotations", "spec"),
    [
        ("targetPools.insert", {}, {}),
        ("targetPools.insert", {}, {"loadBalancerIP": "198.18.9.9"}),
        ("forwardingRules.insert", {TYPE: "Internal"}, {}),
    ],
    ids=["external", "reserved", "internal"],
)
async def test_what_a_creation_has_begun_is_deleted_though_another_controller_is_named_now(
    gce: Gce, cloud: Started, broken_off: str, annotations: dict[str, str], spec: dict[str, str]
) -> None:
    """As where the account has no room: nothing has the Service's UID before its pool and rule."""
    reserved = {"addressType": "EXTERNAL", "networkTier": "PREMIUM", "status": "RESERVED"}
    path = f"projects/{PROJECT}/regions/{REGION}/addresses/kept"
    gce.cloud.put(path, "address", address="198.18.9.9", **reserved)
    before = left(gce)
    gce.fault(broken_off, status=503)
    with pytest.raises(CloudError):
        await ensure(cloud, web(annotations=annotations, **spec), *hosts(gce))
    assert {*left(gce)} > {*before}
    asked = web(annotations={**annotations, BACKEND_SERVICES: "enabled"}, **spec)
    await delete(cloud, asked)
    assert left(gce) == before
