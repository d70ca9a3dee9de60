"""Several load balancers as configured: rows AZ60 to AZ73."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Mapping
from itertools import permutations
from random import Random
from typing import Any, cast

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import node as node_named
from ccm.cloud.testkit.harness import port
from ccm.errors import CloudError, ConfigurationFaults, Denied, Refused, RetryAfter
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.azure.balancer_configs import (
    KEY,
    BalancerConfig,
    Requirement,
    Selector,
    matches,
)
from ccm.providers.azure.config import read_config
from ccm.providers.azure.lb.placement import spread
from tests.labs.azure.lab import Lab, path_of
from tests.providers.azure.conftest import Started, host
from tests.providers.azure.test_azure_balancers import LOCAL, addresses, delete, rules, web
from tests.providers.azure.test_azure_config import GOOD
from tests.support.running import long

MAIN, FAST, SLOW = "kit", "fast", "slow"
INNER, ON = {"load-balancer-internal": "true"}, "load-balancer-configurations"
SETS = {MAIN: "sys", FAST: "fst", SLOW: "slw"}
"""The scale set that is the primary one of each load balancer."""


def labelled(**labels: str) -> Json:
    return {"matchLabels": labels}


def config(lab: Lab, **more: Any) -> str:
    """Three load balancers, or those of `more` with what they select."""
    names = more or {MAIN: {}, FAST: {}, SLOW: {}}
    several = [{"name": name, "primaryVMSet": SETS[name], **one} for name, one in names.items()]
    kind = {"loadBalancerBackendPoolConfigurationType": "nodeIP", "vmType": "vmss"}
    return lab.config(**kind, **{KEY: several})


def labels_of(service: Service, **labels: str) -> Service:
    service.raw["metadata"]["labels"] = labels
    return service


def parts(lab: Lab) -> dict[str, dict[str, set[str]]]:
    """Of each load balancer, by kind, the names of its parts."""
    return {
        one["name"]: {
            kind: {part["name"] for part in listed}
            for kind, listed in one["properties"].items()
            if isinstance(listed, list)
        }
        for one in lab.objects("loadBalancers").values()
    }


def on(lab: Lab, service: Service) -> set[str]:
    """The load balancers with a rule of the Service."""
    base = service.default_balancer_name
    return {
        name
        for name, kinds in parts(lab).items()
        if any(rule.startswith(base) for rule in kinds.get("loadBalancingRules", ()))
    }


def behind(lab: Lab, pool_name: str = "kit") -> dict[str, set[str]]:
    """The nodes in the pool of this name, by load balancer."""
    return {
        balancer["name"]: {
            entry["name"] for entry in pool["properties"].get("loadBalancerBackendAddresses", ())
        }
        for balancer in lab.objects("loadBalancers").values()
        for pool in balancer["properties"].get("backendAddressPools", ())
        if pool["name"] == pool_name
    }


@pytest.fixture
def nodes(lab: Lab) -> list[Node]:
    """Two of each load balancer's primary set, and two of none."""
    found = [host(lab.add_machine(f"node-{number}")) for number in range(2)]
    for name in SETS.values():
        lab.add_scale_set(name, 2)
        for number in range(2):
            machine = f"{path_of('virtualMachineScaleSets', name)}/virtualMachines/{number}"
            found.append(host({"id": machine}, f"{name}00000{number}"))
    return found


@pytest.fixture
async def cloud(lab: Lab) -> Started:
    return await Started(config(lab)).start()


# What the file says


def faults_of(*several: Json, **more: Any) -> str:
    usual = {"loadBalancerBackendPoolConfigurationType": "nodeIP", "vnetName": "v"}
    content = {**GOOD, **usual, **more, KEY: [*several]}
    with pytest.raises(ConfigurationFaults) as raised:
        read_config(json.dumps(content).encode(), "azure.json")
    return str(raised.value)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        ({"name": "b"}, "has items without primaryVMSet, or with one"),
        ({"primaryVMSet": "b"}, "has items without name, or with one"),
        ({"name": "A", "primaryVMSet": "b"}, "has items without name, or with one"),
        ({"name": "b", "primaryVMSet": "A"}, "has items without primaryVMSet, or with one"),
        ({"name": "a-internal", "primaryVMSet": "b"}, "ends with -internal"),
        ({"autoPlaceServices": True}, "autoPlaceServices: is not a key of this file"),
        ({"activeNodes": []}, "activeNodes: is not a key of this file"),
        ({"nodeSelector": []}, ""),
        ({"nodeSelector": "x"}, "nodeSelector: is not a mapping"),
        ({"nodeSelector": {"labels": {}}}, "labels: is not a key of this file"),
        ({"nodeSelector": {"matchExpressions": {}}}, "matchExpressions: is not a list"),
        ({"nodeSelector": {"matchExpressions": [{"key": "a"}]}}, "is not complete"),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}},
            "operator: is 'Gt'; use In, NotIn, Exists, DoesNotExist",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "is not complete",
        ),
    ],
)
def test_what_is_wrong_in_a_load_balancer_is_named(one: Json, why: str) -> None:
    """AZ60."""
    assert why in faults_of({"name": "a", "primaryVMSet": "a"}, one)


def test_several_load_balancers_need_pools_of_addresses() -> None:
    """AZ60."""
    kind = {"loadBalancerBackendPoolConfigurationType": "nodeIPConfiguration"}
    found = faults_of({"name": "a", "primaryVMSet": "a"}, **kind, loadBalancerName="b")
    assert "loadBalancerBackendPoolConfigurationType: is not nodeIP" in found
    assert "loadBalancerName: has no effect" in found


async def test_one_load_balancer_has_the_clusters_name(lab: Lab) -> None:
    """AZ60: as upstream."""
    with pytest.raises(ConfigurationFaults, match="has no item called kit"):
        await Started(config(lab, **{FAST: {}})).start()


@pytest.mark.parametrize(
    ("requirement", "labels", "holds"),
    [
        (Requirement("a", "In", ("1", "2")), {"a": "2"}, True),
        (Requirement("a", "In", ("1",)), {}, False),
        (Requirement("a", "NotIn", ("1",)), {"a": "1"}, False),
        (Requirement("a", "NotIn", ("1",)), {}, True),
        (Requirement("a", "Exists"), {"a": ""}, True),
        (Requirement("a", "Exists"), {}, False),
        (Requirement("a", "DoesNotExist"), {}, True),
        (Requirement("a", "DoesNotExist"), {"a": "1"}, False),
    ],
)
def test_a_selector_is_as_kubernetes_has_it(
    requirement: Requirement, labels: Mapping[str, str], holds: bool
) -> None:
    assert matches((requirement,), labels) is holds
    assert matches((), labels)
    assert matches(None, labels)


def test_keys_count_in_any_case_of_letters() -> None:
    """AZ60: as in Go, and as YAML."""
    text = """
    multiplestandardloadbalancerconfigurations:
    - Name: a
      primaryvmset: s
      AllowServicePlacement: false
      NodeSelector:
        matchlabels: {size: 8}
        MatchExpressions: [{Key: os, Operator: In, Values: [linux]}]
    """
    lines = [line[4:] for line in text.splitlines()]
    usual = {**GOOD, "loadBalancerBackendPoolConfigurationType": "nodeIP", "vnetName": "v"}
    lines += [f"{key}: {value}" for key, value in usual.items()]
    (found,) = read_config("\n".join(lines).encode(), "azure.json").balancers
    requirements = Requirement("size", "In", ("8",)), Requirement("os", "In", ("linux",))
    assert found == BalancerConfig("a", "s", False, None, None, requirements)


# Where Services go


async def test_a_service_goes_where_its_labels_are_selected(lab: Lab, nodes: list[Node]) -> None:
    """AZ61: before all load balancers that select nothing; others go to those alone."""
    chosen = {"serviceLabelSelector": labelled(tier="fast")}
    cloud = await Started(config(lab, **{MAIN: {}, FAST: chosen})).start()
    fast, other = labels_of(web("one"), tier="fast"), web("two")
    await cloud.ensure(fast, *nodes)
    await cloud.ensure(other, *nodes)
    assert (on(lab, fast), on(lab, other)) == ({FAST}, {MAIN})


async def test_a_service_that_nothing_takes_is_refused(lab: Lab, nodes: list[Node]) -> None:
    """AZ61."""
    off, chosen = {"allowServicePlacement": False}, {"serviceLabelSelector": labelled(tier="x")}
    cloud = await Started(config(lab, **{MAIN: off, FAST: chosen})).start()
    with pytest.raises(Refused, match="no load balancer of kit, fast takes it"):
        await cloud.ensure(web(), *nodes)
    assert not addresses(lab)


async def test_a_service_may_name_load_balancers(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ62: the annotation is a list; what it names has to be configured."""
    asked = web(annotations={ON: " Slow,nowhere"})
    made = await cloud.ensure(asked, node)
    assert on(lab, asked) == {SLOW}
    assert [one for one in made.warnings if "no load balancer nowhere is configured" in one]
    with pytest.raises(Refused, match="no load balancer of nowhere takes it"):
        await cloud.ensure(web("two", {ON: "nowhere"}), node)


async def test_the_annotation_means_nothing_to_one_load_balancer(lab: Lab, node: Node) -> None:
    """AZ62: upstream ignores it in silence."""
    cloud = await Started(lab.config()).start()
    made = await cloud.ensure(web(annotations={ON: "slow"}), node)
    assert made.warnings == (
        "annotation service.beta.kubernetes.io/azure-load-balancer-configurations has no effect:"
        " azure.json has one load balancer",
    )


@pytest.fixture
def node(nodes: list[Node]) -> Node:
    return nodes[0]


async def test_a_load_balancer_that_takes_no_services_keeps_its_own(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ63."""
    asked = web(annotations={ON: FAST})
    await cloud.ensure(asked, node)
    off = {"allowServicePlacement": False}
    cloud = await Started(config(lab, **{MAIN: {}, FAST: off})).start()
    before = parts(lab)
    await cloud.ensure(web(), node)
    assert parts(lab) == before
    await cloud.ensure(web("two"), node)
    assert on(lab, web("two")) == {MAIN}


@pytest.mark.parametrize("labels", [{"team": "a"}, {}])
async def test_a_service_goes_where_its_namespace_is_selected(
    lab: Lab, nodes: list[Node], labels: Mapping[str, str]
) -> None:
    """AZ64."""
    asked = list[str]()

    async def read(name: str) -> Mapping[str, str]:
        asked.append(name)
        return labels

    chosen = {"serviceNamespaceSelector": labelled(team="a")}
    text = config(lab, **{MAIN: {}, FAST: chosen})
    cloud = await Started(text, read_namespace=read).start()
    await cloud.ensure(web(), *nodes)
    assert on(lab, web()) == {FAST if labels else MAIN}
    assert asked == ["default"]


async def test_a_namespace_that_cannot_be_read_is_an_error(lab: Lab, node: Node) -> None:
    """AZ64: nothing is placed on doubt."""
    chosen = {"serviceNamespaceSelector": labelled(team="a")}
    cloud = await Started(config(lab, **{MAIN: chosen})).start()
    with pytest.raises(Denied, match="serviceNamespaceSelector"):
        await cloud.ensure(web(), node)
    assert not addresses(lab)


async def test_services_go_to_the_load_balancer_with_the_fewest_rules(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ65: one that is not there has none; who is on one stays; together as one by one."""
    services = [web(f"web-{number}", ports=[port(80 + number)]) for number in range(6)]
    await cloud.ensure(services[0], node)
    assert on(lab, services[0]) == {MAIN}
    await asyncio.gather(*(cloud.ensure(one, node) for one in services[1:]))
    assert Counter(name for one in services for name in on(lab, one)) == {
        MAIN: 2, FAST: 2, SLOW: 2,
    }  # fmt: skip
    before = parts(lab)
    await delete(cloud, services[0])
    lab.forget_calls()
    cloud = await Started(config(lab)).start()
    await asyncio.gather(*(cloud.ensure(one, node) for one in services[1:]))
    assert lab.writes() == []
    await cloud.ensure(services[0], node)
    assert parts(lab) == before


async def test_internal_ones_have_a_twin(lab: Lab, cloud: Started, nodes: list[Node]) -> None:
    """AZ72: of the load balancer where the Service is; the nodes are those of both."""
    asked = web(annotations={ON: FAST})
    await cloud.ensure(asked, *nodes)
    await cloud.ensure(web(annotations=INNER), *nodes)
    assert on(lab, web()) == {f"{FAST}-internal"}
    assert not addresses(lab)
    await cloud.ensure(web("two", {ON: FAST}), *nodes)
    found = behind(lab)
    assert found[FAST] == found[f"{FAST}-internal"] == {one.name for one in nodes}
    await cloud.ensure(web("two", INNER), *nodes)
    assert parts(lab).keys() == {f"{FAST}-internal"}


# How they move


async def test_a_service_moves_with_its_address(
    lab: Lab, cloud: Started, nodes: list[Node]
) -> None:
    """AZ67: an empty load balancer is deleted, and its machines go to the others."""
    await cloud.ensure(web("stays", {ON: MAIN}), *nodes)
    made = await cloud.ensure(web(annotations={ON: FAST}), *nodes)
    admitted = rules(lab)
    assert behind(lab)[FAST] >= {"fst000000", "fst000001"}
    moved = await cloud.ensure(web(annotations={ON: SLOW}), *nodes)
    assert moved.ingress == made.ingress
    assert rules(lab) == admitted
    assert parts(lab).keys() == {MAIN, SLOW}
    found = behind(lab)
    assert {"slw000000", "slw000001"} <= found[SLOW]
    assert found[MAIN] | found[SLOW] == {one.name for one in nodes}
    assert not found[MAIN] & found[SLOW]
    lab.forget_calls()
    cloud = await Started(config(lab)).start()
    await cloud.ensure(web(annotations={ON: SLOW}), *nodes)
    await cloud.ensure(web("stays", {ON: MAIN}), *nodes)
    assert lab.writes() == []


@pytest.mark.parametrize("kind", [{}, INNER], ids=["public", "internal"])
@pytest.mark.parametrize("has_begun", [False, True])
async def test_an_address_stays_its_services_while_that_moves(
    lab: Lab,
    cloud: Started,
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    kind: dict[str, str],
    has_begun: bool,
) -> None:
    """No load balancer has it for a moment: another Service would have it, and its clients."""
    ip = (await cloud.ensure(web(annotations={**kind, ON: FAST}), node)).ingress[0].ip
    other = web("other", kind, loadBalancerIP=ip, ports=[port(443, node_port=30443)])
    lbs, left, refused = cast(Any, cloud.load_balancers), asyncio.Event(), list[str]()
    resources = lbs._resources
    leave, write = resources.leave, resources.write

    async def write_later(*args: Any) -> Any:
        monkeypatch.setattr(resources, "write", write)
        began.set()
        await left.wait()
        return await write(*args)

    async def leave_first(*args: Any) -> Any:
        monkeypatch.setattr(resources, "leave", leave)
        found = await leave(*args)
        left.set()
        with pytest.raises(RetryAfter, match="is another Service's, which moves") as error:
            await (beginning or invoke(lbs.ensure, other, [node]))
        refused.append(str(error.value))
        return found

    began = asyncio.Event()
    beginning: asyncio.Task[Any] | None = None
    if has_begun:  # it has read that the first load balancer has the address
        monkeypatch.setattr(resources, "write", write_later)
        beginning = asyncio.create_task(invoke(lbs.ensure, other, [node]))
        await began.wait()
    monkeypatch.setattr(resources, "leave", leave_first)
    moved = web(annotations={**kind, ON: SLOW})
    await cloud.ensure(moved, node)
    assert refused
    assert (await cloud.ensure(other, node)).ingress[0].ip == ip
    assert on(lab, moved) == on(lab, other) == {f"{SLOW}-internal" if kind else SLOW}


async def test_a_move_that_was_interrupted_goes_on(lab: Lab, cloud: Started, node: Node) -> None:
    """AZ67: whatever write of it fails."""
    asked = web(annotations={ON: MAIN})
    for at in range(1, 8):
        await cloud.ensure(asked, node)
        target = FAST if on(lab, asked) == {MAIN} else MAIN
        asked = web(annotations={ON: target})
        lab.fail("(PUT|DELETE) .*", times=at, status=500, code="InternalServerError")
        try:
            await cloud.ensure(asked, node)
        except CloudError:
            lab.heal()
            await cloud.ensure(asked, node)
        lab.heal()
        assert on(lab, asked) == {target}
        assert parts(lab).keys() == {target}
        assert len(addresses(lab)) == 1


async def test_a_frontend_that_others_use_does_not_move(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ68: the others would lose their address; nothing is written."""
    asked = {ON: FAST}
    (ingress,) = (await cloud.ensure(web("one", asked), node)).ingress
    second = web("two", ports=[port(81)], loadBalancerIP=ingress.ip)
    await cloud.ensure(second, node)
    assert on(lab, second) == {FAST}
    before = parts(lab)
    with pytest.raises(
        Refused, match="it cannot leave load balancer fast: others use its frontend"
    ):
        await cloud.ensure(web("one", {ON: MAIN}), node)
    assert parts(lab) == before


async def test_a_named_address_is_where_its_load_balancer_is(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ69: a list of others beside it is refused, and so is one that does not take it."""
    (ingress,) = (await cloud.ensure(web("one", {ON: SLOW}), node)).ingress
    asked = {ON: SLOW, "load-balancer-ipv4": ingress.ip}
    with pytest.raises(Refused, match="names an address, which has its load balancer"):
        await cloud.ensure(web("two", asked), node)
    closed = {"serviceLabelSelector": labelled(tier="x")}
    cloud = await Started(config(lab, **{MAIN: {}, SLOW: closed})).start()
    with pytest.raises(Refused, match="its address is on load balancer slow"):
        await cloud.ensure(web("two", {"load-balancer-ipv4": ingress.ip}), node)
    assert on(lab, web("two")) == set()


async def test_a_private_address_moves_with_its_service(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """AZ67: within its subnet."""
    made = await cloud.ensure(web(annotations=INNER | {ON: FAST}), node)
    moved = await cloud.ensure(web(annotations=INNER | {ON: SLOW}), node)
    assert moved.ingress == made.ingress
    assert on(lab, web()) == {f"{SLOW}-internal"}


async def test_a_service_whose_private_address_is_taken_while_it_moves_gets_another_one(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Azure gives the next machine what no load balancer has; it is not down until it changes."""
    made = await cloud.ensure(web(annotations=INNER | {ON: FAST}), node)
    taken: Json = {"status": 400, "code": "PrivateIPAddressIsAllocated", "message": "of a machine"}
    lab.fail(f"PUT .*loadBalancers/{SLOW}-internal", **taken)
    moved = await cloud.ensure(web(annotations=INNER | {ON: SLOW}), node)
    assert moved.ingress != made.ingress
    assert made.ingress[0].ip not in str(rules(lab))
    assert on(lab, web()) == {f"{SLOW}-internal"}


async def test_a_node_that_nothing_takes_is_named(lab: Lab, nodes: list[Node]) -> None:
    """AZ66: as upstream."""
    sized = {"nodeSelector": labelled(size="8")}
    cloud = await Started(config(lab, **{MAIN: sized})).start()
    made = await cloud.ensure(web(), *nodes)
    assert behind(lab)[MAIN] == {"sys000000", "sys000001"}
    assert made.warnings == (
        "no load balancer takes nodes fst000000, fst000001, node-0, node-1, slw000000 and 1 more",
    )


# Which nodes are behind which


def configured(**more: Any) -> tuple[BalancerConfig, ...]:
    return tuple(BalancerConfig(name, SETS[name], node_selector=more.get(name)) for name in SETS)


SIZED: Selector = (Requirement("size", "In", ("8",)),)


def labelled_node(name: str, **labels: str) -> Node:
    found = node_named(name)
    found.raw["metadata"]["labels"] = labels
    return found


@pytest.mark.parametrize(
    ("selectors", "joined", "nodes", "spread_out"),
    [
        pytest.param({}, {MAIN: ""}, "a:sys b:fst c:", {MAIN: "abc"}, id="the only one"),
        pytest.param(
            {}, {MAIN: "ab", FAST: ""}, "a:sys b:fst c:", {MAIN: "ac", FAST: "b"}, id="primary"
        ),
        pytest.param(
            {}, {MAIN: "abc", FAST: ""}, "a: b: c:", {MAIN: "abc", FAST: ""}, id="stays"
        ),
        pytest.param(
            {}, {MAIN: "a", FAST: ""}, "a: b: c: d:", {MAIN: "ac", FAST: "bd"}, id="fewest"
        ),
        pytest.param(
            {FAST: SIZED}, {MAIN: "ab", FAST: ""}, "a:/8 b:/4", {MAIN: "b", FAST: "a"},
            id="selected",
        ),
        pytest.param(
            {FAST: SIZED}, {MAIN: "", FAST: ""}, "a:sys/8", {MAIN: "a", FAST: ""},
            id="primary before selected",
        ),
        pytest.param(
            {FAST: SIZED}, {MAIN: ""}, "a:/8", {MAIN: "a"}, id="selected by one not there"
        ),
        pytest.param(
            {MAIN: SIZED, FAST: SIZED}, {MAIN: "a", FAST: ""}, "a:/4", {MAIN: "", FAST: ""},
            id="taken by none",
        ),
        pytest.param(
            {FAST: ()}, {MAIN: "", FAST: ""}, "a: b:", {MAIN: "a", FAST: "b"},
            id="a selector of nothing",
        ),
        pytest.param({}, {MAIN: "a", FAST: "a"}, "a:", {MAIN: "", FAST: "a"}, id="in two"),
        pytest.param({}, {MAIN: "xa"}, "a:", {MAIN: "a"}, id="gone"),
    ],
)  # fmt: skip
def test_nodes_are_spread_by_upstreams_rules(
    selectors: dict[str, Selector],
    joined: dict[str, str],
    nodes: str,
    spread_out: dict[str, str],
) -> None:
    """AZ66: primary set, then selectors, then where it is, then the fewest nodes."""
    listed, sets = list[Node](), dict[str, str]()
    for word in nodes.split():
        name, _, rest = word.partition(":")
        sets[name], _, size = rest.partition("/")
        listed.append(labelled_node(name, **({"size": size} if size else {})))
    there = {name: {*some} for name, some in joined.items()}
    found = spread(configured(**selectors), there, listed, sets)
    assert found == {name: {*some} for name, some in spread_out.items()}
    assert spread(configured(**selectors), found, listed, sets) == found


def test_each_node_is_behind_one_load_balancer_whoever_comes_first() -> None:
    """AZ66: a property, over all orders in which load balancers are made."""
    listed = [labelled_node(f"n{number}") for number in range(9)]
    sets = {one.name: ("sys", "fst", "slw", "")[at % 4] for at, one in enumerate(listed)}
    for order in permutations(SETS):
        there = dict[str, set[str]]()
        for name in order:
            there = spread(configured(), {**there, name: set()}, listed, sets)
            assert sorted(one for some in there.values() for one in some) == sorted(sets)
        for name, some in there.items():
            assert {one for one in sets if sets[one] == SETS[name]} <= some


async def test_nodes_follow_the_load_balancers(lab: Lab, cloud: Started, nodes: list[Node]) -> None:
    """AZ66, AZ71: in parallel each machine is behind one; a Node that goes leaves all."""
    names = {one.name for one in nodes}
    services = [web(f"web-{number}", ports=[port(80 + number)]) for number in range(6)]
    await cloud.ensure(services[0], *nodes)
    assert behind(lab) == {MAIN: names}
    await asyncio.gather(*(cloud.ensure(one, *nodes) for one in services))
    found = behind(lab)
    assert sorted(one for some in found.values() for one in some) == sorted(names)
    assert all({f"{SETS[name]}00000{at}" for at in (0, 1)} <= found[name] for name in SETS)
    assert cloud.load_balancers
    lab.forget_calls()
    left = nodes[1:]
    updates = (invoke(cloud.load_balancers.update_nodes, one, left) for one in services)
    await asyncio.gather(*updates)
    assert set.union(*behind(lab).values()) == names - {nodes[0].name}
    assert len(lab.writes()) == 1
    for one in services:
        await delete(cloud, one)
    assert not parts(lab)
    assert not addresses(lab)
    assert not rules(lab)


async def test_labels_that_choose_nodes_are_known(lab: Lab, nodes: list[Node]) -> None:
    """AZ66: a change of them is a change of nodes; the node moves."""
    chosen = {"nodeSelector": labelled(size="8")}
    cloud = await Started(config(lab, **{MAIN: {}, FAST: chosen})).start()
    balancers: Any = cloud.load_balancers
    assert balancers.selector_labels(web()) == {"size"}
    for number, name in enumerate((MAIN, FAST)):
        asked = {ON: name}
        await cloud.ensure(web(f"web-{number}", asked, ports=[port(80 + number)]), *nodes)
    assert "node-1" in behind(lab)[MAIN]
    nodes[1].raw["metadata"]["labels"] = {"size": "8"}
    await invoke(balancers.update_nodes, web("web-0"), nodes)
    found = behind(lab)
    assert "node-1" in found[FAST] - found[MAIN]


async def test_a_load_balancer_that_goes_leaves_its_nodes_to_the_others(
    lab: Lab, cloud: Started, nodes: list[Node]
) -> None:
    """AZ73: upstream waits for the next change of a Service."""
    stays, goes = (
        web(name, {ON: name}, ports=[port(80 + at)]) for at, name in enumerate((MAIN, FAST))
    )
    await cloud.ensure(stays, *nodes)
    await cloud.ensure(goes, *nodes)
    await delete(cloud, goes)
    assert behind(lab) == {MAIN: {one.name for one in nodes}}


async def test_a_twin_that_goes_last_leaves_its_nodes_to_the_others(
    lab: Lab, cloud: Started, nodes: list[Node]
) -> None:
    """AZ73: of an internal Service that becomes a public one elsewhere."""
    await cloud.ensure(web("stays", {ON: MAIN}, ports=[port(81)]), *nodes)
    await cloud.ensure(web(annotations=INNER | {ON: SLOW}), *nodes)
    await cloud.ensure(web(annotations={ON: FAST}), *nodes)
    assert parts(lab).keys() == {MAIN, FAST}
    assert set.union(*behind(lab).values()) == {one.name for one in nodes}


@pytest.mark.parametrize("families", [["IPv4"], ["IPv4", "IPv6"]])
async def test_a_local_service_has_a_pool_of_its_own(
    lab: Lab, cloud: Started, nodes: list[Node], families: list[str]
) -> None:
    """AZ70: with all nodes, as its endpoints may be on any; it goes with the policy."""
    both: dict[str, Any] = {"ipFamilies": families}
    if len(families) > 1:
        both["ipFamilyPolicy"] = "RequireDualStack"
    pools = {"default-web", "default-web-ipv6"} if len(families) > 1 else {"default-web"}
    asked = {ON: FAST}
    await cloud.ensure(web("other", {ON: MAIN}), *nodes)
    await cloud.ensure(web(annotations=asked, **LOCAL, **both), *nodes)
    assert parts(lab)[FAST]["backendAddressPools"] == pools
    assert behind(lab, "default-web") == {FAST: {one.name for one in nodes}}
    assert behind(lab)[MAIN] == {one.name for one in nodes} - {"fst000000", "fst000001"}
    await cloud.ensure(web(annotations=asked, **both), *nodes)
    assert not parts(lab)[FAST]["backendAddressPools"] & pools
    await cloud.ensure(web("third", asked, ports=[port(81)]), *nodes)
    await cloud.ensure(web(annotations=asked, **LOCAL, **both), *nodes)
    await delete(cloud, web(annotations=asked, **LOCAL, **both))
    assert not parts(lab)[FAST]["backendAddressPools"] & pools


async def test_the_pool_of_another_service_is_not_taken(
    lab: Lab, cloud: Started, nodes: list[Node]
) -> None:
    """Upstream's names are the same for `a-b/c` and `a/b-c`, and for IPv6 that of `web-ipv6`."""
    asked = {ON: FAST}
    both: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
    await cloud.ensure(web(annotations=asked, **LOCAL, **both), *nodes)
    before = behind(lab, "default-web-ipv6")
    with pytest.raises(Refused, match="pool default-web-ipv6 is another Service's"):
        await cloud.ensure(web("web-ipv6", asked, **LOCAL), *nodes)
    assert behind(lab, "default-web-ipv6") == before


async def test_a_service_that_is_refused_takes_no_room_of_others(
    lab: Lab, cloud: Started, nodes: list[Node]
) -> None:
    """All others would go to the rest of the load balancers until those are full."""
    ports = [port(1000 + number, node_port=30000 + number) for number in range(200)]
    with pytest.raises(Refused, match="there is no public address"):
        await cloud.ensure(web("attacker", ports=ports, loadBalancerIP="203.0.113.250"), *nodes)
    services = [web(f"web-{number}", ports=[port(80 + number)]) for number in range(6)]
    for one in services:
        await cloud.ensure(one, *nodes)
    assert Counter(name for one in services for name in on(lab, one)) == dict.fromkeys(SETS, 2)


async def test_who_is_refused_the_pool_of_another_service_changes_none_of_its_members(
    lab: Lab, cloud: Started, nodes: list[Node]
) -> None:
    """Where nodes change later; the Service has its own frontend on the same load balancer."""
    asked = {ON: FAST}
    both: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
    await cloud.ensure(web("web-ipv6", asked, ports=[port(81)]), *nodes)
    await cloud.ensure(web(annotations=asked, **LOCAL, **both), *nodes)
    before = lab.objects("loadBalancers")
    refused = web("web-ipv6", asked, ports=[port(81)], **LOCAL)
    with pytest.raises(Refused, match="another Service's"):
        await cloud.ensure(refused, *nodes)
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_nodes, refused, nodes)
    assert lab.objects("loadBalancers") == before


async def test_the_pool_of_an_outbound_rule_is_not_taken(
    lab: Lab, cloud: Started, nodes: list[Node]
) -> None:
    """A person's is called as one of a Service would be: machines would lose their way out."""
    await cloud.ensure(web("first", {ON: FAST}), *nodes)
    record = lab.get("loadBalancers", FAST)
    found = record["properties"]
    found["backendAddressPools"].append({"name": "default-out"})
    pool = {"id": f"{record['id']}/backendAddressPools/default-out"}
    frontends = [{"id": found["frontendIPConfigurations"][0]["id"]}]
    rule = {"protocol": "All", "backendAddressPool": pool, "frontendIPConfigurations": frontends}
    found["outboundRules"] = [{"name": "out", "properties": rule}]
    lab.put("loadBalancers", FAST, {"sku": record["sku"], "properties": found})
    with pytest.raises(Refused, match="pool default-out is another Service's"):
        await cloud.ensure(web("out", {ON: FAST}, ports=[port(81)], **LOCAL), *nodes)
    assert behind(lab, "default-out") == {FAST: set()}


async def test_rules_for_machines_name_all_of_them(
    lab: Lab, cloud: Started, nodes: list[Node]
) -> None:
    """AZ71: they may move to this load balancer when another one goes."""
    off = {"disable-load-balancer-floating-ip": "true"}
    await cloud.ensure(web("one", off | {ON: MAIN}), *nodes)
    await cloud.ensure(web("two", {ON: FAST}), *nodes)
    opened = {tuple(one["destinationPortRanges"]): one for one in rules(lab).values()}
    assert len(opened["30080",]["destinationAddressPrefixes"]) == len(nodes)
    await delete(cloud, web("one", off))
    assert opened.keys() - {("30080",)} == {
        tuple(one["destinationPortRanges"]) for one in rules(lab).values()
    }


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=long) for seed in range(2, 10))])
async def test_whatever_is_asked_for_the_rules_hold(
    lab: Lab, cloud: Started, nodes: list[Node], seed: int
) -> None:
    """AZ65 to AZ73: thirty wishes in any order, some at once, some beside failures."""
    chance = Random(seed)
    wishes = dict[str, Service]()
    current = [*nodes]
    for _ in range(10):
        chosen = chance.sample(range(8), chance.randint(1, 5))
        asked = {f"web-{number}": wish(chance, number) for number in chosen}
        current = sorted(chance.sample(nodes, chance.randint(3, len(nodes))), key=str)
        if chance.random() < 0.3:
            lab.fail("(PUT|DELETE) .*", chance.randint(1, 3), status=500, code="Internal")
        gone = [name for name in asked if name in wishes and chance.random() < 0.3]
        wishes = {name: one for name, one in (wishes | asked).items() if name not in gone}
        for _ in range(4):
            acts: list[Awaitable[object]] = [delete(cloud, asked[name]) for name in gone]
            acts += [cloud.ensure(one, *current) for name, one in wishes.items()]
            results = await asyncio.gather(*acts, return_exceptions=True)
            if not [one for one in results if isinstance(one, BaseException)]:
                break
        assert not [one for one in results if isinstance(one, BaseException)], results
        check_rules(lab, wishes, {one.name for one in current})
    for one in wishes.values():
        await delete(cloud, one)
    assert not parts(lab)
    assert not addresses(lab)
    assert not rules(lab)


def wish(chance: Random, number: int) -> Service:
    asked = {ON: chance.choice(("kit", "fast", "slow", "fast,slow"))}
    asked |= INNER if chance.random() < 0.3 else {}
    asked = {} if chance.random() < 0.3 else asked
    local = LOCAL if chance.random() < 0.3 else {}
    return web(f"web-{number}", asked, ports=[port(80 + number)], **local)


def check_rules(lab: Lab, wishes: Mapping[str, Service], nodes: set[str]) -> None:
    """Each Service is on one load balancer, each node behind one and its twin, and no more."""
    found = parts(lab)
    for one in wishes.values():
        (name,) = on(lab, one)
        asked = one.annotations.get("service.beta.kubernetes.io/azure-load-balancer-configurations")
        is_internal = "service.beta.kubernetes.io/azure-load-balancer-internal" in one.annotations
        assert name.removesuffix("-internal") in (asked or ",".join(SETS)).split(",")
        assert name.endswith("-internal") is is_internal
    bases = {one.default_balancer_name for one in wishes.values()}
    for kinds in found.values():
        names = kinds["frontendIPConfigurations"] | kinds["loadBalancingRules"]
        assert {one.partition("-")[0] for one in names} <= bases
    shares = dict[str, set[str]]()
    for name, some in behind(lab).items():
        key = name.removesuffix("-internal")
        assert shares.setdefault(key, some) == some
    listed = [one for some in shares.values() for one in some]
    assert len(listed) == len({*listed})
    if {name.removesuffix("-internal") for name in found} == shares.keys():
        assert {*listed} == nodes
    for name, one in wishes.items():
        own = behind(lab, f"default-{name}")
        is_local = one.spec["externalTrafficPolicy"] == "Local"
        assert own == (dict.fromkeys(on(lab, one), nodes) if is_local else {})
