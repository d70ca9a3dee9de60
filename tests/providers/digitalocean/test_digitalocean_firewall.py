"""The firewall of node ports: which are open, and when it is written."""

import time
from collections.abc import Iterable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service, uid_of
from ccm.controllers import provided_by, with_defaults
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Network
from ccm.model.objects import Json
from ccm.model.service import SOURCE_RANGES, Service
from ccm.providers.digitalocean import firewall
from ccm.providers.digitalocean.config import FirewallSection
from ccm.providers.digitalocean.firewall_plan import (
    MANAGED,
    MOST_RULES,
    Inbound,
    Reading,
    body,
    is_different,
    opened,
)
from ccm.providers.digitalocean.lb.annotations import DISOWN, PREFIX
from tests.labs.digitalocean.server import DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.conftest import Started
from tests.support.waiting import turns_during
from workers.controller import NotNeeded
from workers.queue import WorkQueue

UUID = "4de7ac8b-495b-4884-9a69-1050c6793cd6"
EVERYBODY = {"addresses": ["0.0.0.0/0", "::/0"]}
SECTION = "[Firewall]\nname = k8s-public-access\ntag = worker\n"


@pytest.fixture
async def cloud(do: DigitalOcean) -> Started:
    return await Started(config_of(do) + SECTION).start()


def published(name: str, *ports: Json, ip: str = "203.0.113.9", **annotations: str) -> Service:
    """A Service whose load balancer is there."""
    made = service(name, annotations, ports=list(ports))
    made.raw["status"] = {"loadBalancer": {"ingress": [{"ip": ip}]}}
    return made


def readings(services: Iterable[Service], kind: str = "REGIONAL_NETWORK") -> list[Reading]:
    return [Reading.of(each, kind) for each in services]


async def reconciled(do: DigitalOcean, cloud: Started, there: dict[str, Service]) -> Json:
    """The firewall once the controller has seen these Services, by their keys."""
    store = SimpleNamespace(view=lambda kind, key: there.get(key))
    context: Any = SimpleNamespace(provider=cloud, store=store)
    controller = firewall.new_controller(context)
    for key in there:
        controller.map_to_keys("Service", key)
    await controller.reconcile("firewall")
    (record,) = do.firewalls.values()
    return record


def test_node_ports_are_open_and_what_network_load_balancers_need() -> None:
    node_port = service("a", type="NodePort", ports=[port(80), port(53, "UDP", 30053)])
    services = [
        node_port,
        service(
            "opted-out", {MANAGED: "false"}, type="NodePort", ports=[port(81, node_port=30081)]
        ),
        service("odd", {MANAGED: "no"}, type="NodePort", ports=[port(82, node_port=30082)]),
        published("network", port(8443), port(31443, "UDP")),
        service("unserved", ports=[port(31444)]),
        published("regional", port(31445), **{f"{PREFIX}type": "REGIONAL"}),
        published("internal", port(31446), **{f"{PREFIX}network": "INTERNAL"}),
        published("disowned", port(31447), **{DISOWN: "true"}),
        published("ssh", port(22), port(10250)),
        published("odd ranges", port(31448), **{SOURCE_RANGES: "everybody"}),
        published("ranges", port(8443), **{SOURCE_RANGES: "192.0.2.0/24"}),
        service("inside", type="ClusterIP", ports=[port(446)]),
        service("sctp", type="NodePort", ports=[port(447, "SCTP")]),
    ]
    section, uid = FirewallSection(port=("443", "8000-8999")), uid_of("network")
    assert opened(readings(services), section.opens) == {
        Inbound("tcp", 30080),
        Inbound("udp", 30053),
        Inbound("tcp", 30082),
        Inbound("tcp", 8443, uid),
        Inbound("udp", 31443, uid),
        Inbound("tcp", 8443, uid_of("ranges"), ("192.0.2.0/24",)),
        *(Inbound("tcp", 10256, uid_of(one), ()) for one in ("network", "ssh", "ranges")),
    }
    assert opened(readings(services[3:4], "REGIONAL"), section.opens) == set()


async def test_no_service_opens_the_node_port_of_another(
    do: DigitalOcean, cloud: Started, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be closed on purpose, or have source ranges."""
    ports = [port(443, node_port=31000)]
    asked = {f"{PREFIX}type": "REGIONAL_NETWORK"}
    hostile = published("hostile", port(31000), port(31001), port(31000, "UDP"), **asked)
    there = {
        "default/closed": service("closed", {MANAGED: "false"}, type="NodePort", ports=ports),
        "default/own": published("own", port(31002, node_port=31002), **asked),
        "default/hostile": hostile,
    }
    do.add_balancer(name=hostile.default_balancer_name)
    do.add_balancer(name=there["default/own"].default_balancer_name)
    record = await reconciled(do, cloud, there)
    rules = {(rule["protocol"], rule["ports"]) for rule in record["inbound_rules"]}
    assert rules == {("tcp", "31001"), ("udp", "31000"), ("tcp", "31002"), ("tcp", "10256")}
    (closed,) = (one for one in caplog.records if one.message == "ports stay closed")
    assert closed.__dict__["ports"] == ["tcp 31000"]


async def test_no_service_opens_the_port_of_anothers_health_check(
    do: DigitalOcean, cloud: Started
) -> None:
    """It tells the name of the other, and how many endpoints a node has."""
    asked = {f"{PREFIX}type": "REGIONAL_NETWORK"}
    local = published("local", port(31002, node_port=31002), **asked)
    local.raw["spec"] |= {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31009}
    hostile = published("hostile", port(31009), **asked)
    for one in (local, hostile):
        do.add_balancer(name=one.default_balancer_name)
    record = await reconciled(do, cloud, {"default/local": local, "default/hostile": hostile})
    sources = [rule["sources"] for rule in record["inbound_rules"] if rule["ports"] == "31009"]
    assert len(sources) == 1
    assert EVERYBODY not in sources


@pytest.mark.parametrize("listed", [None, [], "absent"])
async def test_droplets_that_one_list_lacks_stay_behind_the_firewall(
    do: DigitalOcean, cloud: Started, monkeypatch: pytest.MonkeyPatch, listed: object
) -> None:
    """Those that someone added lost it: all their ports were open, until he looked."""
    record = await reconciled(do, cloud, {})
    do.firewalls[record["id"]]["droplet_ids"] = [7]
    shown = {**do.firewalls[record["id"]], "droplet_ids": listed}
    if listed == "absent":
        del shown["droplet_ids"]
    answers = [shown, do.firewalls[record["id"]]]
    monkeypatch.setattr(do, "_get_firewalls", lambda *_: [answers.pop(0)])
    opened_now = service("a", type="NodePort", ports=[port(80)])
    assert (await reconciled(do, cloud, {"default/a": opened_now}))["droplet_ids"] == [7]


@pytest.mark.parametrize("mixed_up", ["id", "name"])
async def test_firewalls_that_one_list_mixes_up_have_no_other_one_written(
    do: DigitalOcean, cloud: Started, monkeypatch: pytest.MonkeyPatch, mixed_up: str
) -> None:
    """Another cluster's, or a person's, got our name and rules, and its own were gone."""
    own = await reconciled(do, cloud, {})
    theirs = {**deepcopy(own), "id": UUID, "name": "theirs", "droplet_ids": [7]}
    do.firewalls[UUID] = theirs
    first, second = {**own, mixed_up: theirs[mixed_up]}, {**theirs, mixed_up: own[mixed_up]}
    answers = [[own, theirs], [first, second]]
    monkeypatch.setattr(do, "_get_firewalls", lambda *_: answers.pop())
    assert cloud.firewalls
    with pytest.raises(CloudError, match="ListFirewalls: two answers"):
        await cloud.firewalls.ensure({Inbound("tcp", 30080)}, [])
    assert do.firewalls == {own["id"]: own, UUID: theirs}


async def test_no_service_closes_the_port_of_another_by_a_node_port_that_it_does_not_have(
    do: DigitalOcean,
) -> None:
    """What an ExternalName says of node ports is kept by the API server, which gives it none."""
    cloud = await Started(config_of(do) + SECTION + "port = 443\n").start()
    own = published("own", port(443), **{f"{PREFIX}type": "REGIONAL_NETWORK"})
    hostile = service("hostile", type="ExternalName", ports=[port(80, node_port=443)])
    do.add_balancer(name=own.default_balancer_name)
    record = await reconciled(do, cloud, {"default/own": own, "theirs/hostile": hostile})
    assert {rule["ports"] for rule in record["inbound_rules"]} == {"443", "10256"}


def test_order_says_nothing_and_all_ports_have_three_names() -> None:
    rules = {Inbound("tcp", 30080), Inbound("udp", 30053), Inbound("tcp", 10256, "uid", ())}
    wanted = body("fw", ["b", "a"], rules, {"uid": UUID}, {})
    assert {"load_balancer_uids": [UUID]} in [rule["sources"] for rule in wanted["inbound_rules"]]
    there: Json = {**wanted, "id": UUID, "status": "succeeded", "tags": ["b", "a"]}
    there["inbound_rules"] = wanted["inbound_rules"][::-1]
    there["outbound_rules"] = [{**rule, "ports": "0"} for rule in wanted["outbound_rules"]]
    assert not is_different(wanted, there)
    for key, value in (("inbound_rules", []), ("tags", ["a"]), ("outbound_rules", [])):
        assert is_different(wanted, {**there, key: value}), key
    assert body("fw", ["a"], rules, {}, {"droplet_ids": [7]})["droplet_ids"] == [7]


async def test_it_is_made_changed_and_left_alone(do: DigitalOcean, cloud: Started) -> None:
    """Hand changes are reverted."""
    firewalls = cloud.firewalls
    assert firewalls
    one, two = {Inbound("tcp", 30080)}, {Inbound("tcp", 30080), Inbound("udp", 30053)}
    assert await firewalls.ensure(one, ())
    assert not await firewalls.ensure(one, ())
    assert await firewalls.ensure(two, ())
    (record,) = do.firewalls.values()
    assert (record["name"], record["tags"]) == ("k8s-public-access", ["worker"])
    assert [rule["ports"] for rule in record["inbound_rules"]] == ["30080", "30053"]
    assert all(rule["sources"] == EVERYBODY for rule in record["inbound_rules"])
    record["inbound_rules"].append({"protocol": "tcp", "ports": "22", "sources": EVERYBODY})
    assert await firewalls.ensure(two, ())
    assert not await firewalls.ensure(two, ())
    do.firewalls["again"] = {**record, "id": "again"}
    with pytest.raises(Refused, match="2 firewalls are called"):
        await firewalls.ensure(two, ())


async def test_the_controller_has_one_key_for_all_services(
    do: DigitalOcean, cloud: Started
) -> None:
    there = {"default/web": service("web", type="NodePort")}
    store = SimpleNamespace(view=lambda kind, key: there.get(key))
    context: Any = SimpleNamespace(provider=cloud, store=store)
    controller = firewall.new_controller(context)
    assert list(controller.map_to_keys("Service", "default/web")) == ["firewall"]
    assert (await controller.reconcile("firewall")).message == "1 ports are open now"
    reads = len(do.requests)
    assert (await controller.reconcile("firewall")).message == "1 ports are open, as before"
    assert len(do.requests) == reads
    del there["default/web"]
    assert list(controller.map_to_keys("Service", "default/web")) == ["firewall"]
    assert (await controller.reconcile("firewall")).message == "0 ports are open now"
    assert controller.status() == {"objects": 0}


@pytest.mark.parametrize(
    "hostile",
    [
        {"ports": [port(number, node_port=31000 + number) for number in range(1, 100)]},
        {
            "type": "LoadBalancer",
            "ports": [port(31000)],
            "loadBalancerSourceRanges": [f"10.0.{at >> 8}.{at % 256}/32" for at in range(2000)],
        },
    ],
    ids=["ports", "ranges"],
)
async def test_a_tenant_who_asks_for_too_much_closes_no_port_of_others(
    do: DigitalOcean, cloud: Started, hostile: Json, caplog: pytest.LogCaptureFixture
) -> None:
    """The firewall is one for all, and takes 50 rules, each with 1,000 sources."""
    there = {
        "default/web": service("web", type="NodePort"),
        "tenant/odd": published("odd", **{f"{PREFIX}type": "REGIONAL_NETWORK"}),
    }
    there["tenant/odd"].raw["metadata"]["namespace"] = "tenant"
    there["tenant/odd"].raw["spec"] |= {"type": "NodePort", **hostile}
    record = await reconciled(do, cloud, there)
    assert "30080" in [rule["ports"] for rule in record["inbound_rules"]]
    assert "ports stay closed" in caplog.messages


async def test_the_health_check_is_open_to_the_services_own_load_balancer(
    do: DigitalOcean, cloud: Started
) -> None:
    """Known by its name; recreated, the new one counts; to none nothing is open."""
    asked = published("web", port(443))
    there = {"default/web": asked}
    store = SimpleNamespace(view=lambda kind, key: there.get(key))
    context: Any = SimpleNamespace(provider=cloud, store=store)
    controller = firewall.new_controller(context)
    controller.map_to_keys("Service", "default/web")

    async def sources() -> list[Json]:
        await controller.reconcile("firewall")
        (record,) = do.firewalls.values()
        return [one["sources"] for one in record["inbound_rules"] if one["ports"] == "10256"]

    assert await sources() == []
    for ip in ("203.0.113.7", "203.0.113.8"):
        do.balancers.clear()
        own = do.add_balancer(name=asked.default_balancer_name)["id"]
        there["default/web"] = published("web", port(443), ip=ip)
        controller.map_to_keys("Service", "default/web")
        assert await sources() == [{"load_balancer_uids": [own]}]


async def test_a_list_that_lacks_load_balancers_closes_no_port(
    do: DigitalOcean, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ports of all Services would be closed until the next look, minutes later."""
    asked = published("web", port(443))
    do.add_balancer(name=asked.default_balancer_name)
    rules = opened(readings([asked]), bool)
    assert cloud.firewalls
    await cloud.firewalls.ensure(rules, [asked])
    read = do._get_load_balancers
    monkeypatch.setattr(
        do, "_get_load_balancers", lambda one, query: read(one, query) if one else []
    )
    assert not await cloud.firewalls.ensure(rules, [asked])
    do.balancers.clear()
    assert await cloud.firewalls.ensure(rules, [asked])
    (record,) = do.firewalls.values()
    assert record["inbound_rules"] == []


async def test_load_balancers_that_go_together_leave_a_firewall_that_can_be_written(
    do: DigitalOcean, cloud: Started
) -> None:
    """As with their namespace: the list that lacks all of them was to blame, for good."""
    asked = {f"{PREFIX}type": "REGIONAL_NETWORK"}
    there = {f"{at}": published(f"a{at}", port(22), **asked) for at in range(MOST_RULES)}
    for one in there.values():
        do.add_balancer(name=one.default_balancer_name)
    assert len((await reconciled(do, cloud, there))["inbound_rules"]) == MOST_RULES
    do.balancers.clear()
    own = published("own", port(443), **asked)
    do.add_balancer(name=own.default_balancer_name)
    record = await reconciled(do, cloud, {"own": own})
    assert [rule["ports"] for rule in record["inbound_rules"]] == ["10256"]


def test_ranges_of_a_service_are_read_once_however_many_ports_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may be thousands, and every change of any Service reads them all again."""
    many = published("many", *(port(number) for number in range(8000, 8100)))
    reads, read = list[str](), Service.source_ranges

    def counted(one: Service) -> frozenset[Network]:
        reads.append(one.key)
        return read(one)

    monkeypatch.setattr(Service, "source_ranges", counted)
    assert len(opened(readings([many]), bool)) == 101
    assert len(reads) == 1


async def test_a_service_is_read_once_however_often_others_change(
    do: DigitalOcean, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few with thousands of ranges or ports took seconds of one turn with each change of any."""
    there = {"default/large": published("large", port(8000)), "default/b": service("b")}
    reads, views = list[str](), list[str]()
    read = Service.source_ranges

    def counted(one: Service) -> frozenset[Network]:
        reads.append(one.name)
        return read(one)

    def view(_: object, key: str) -> Service | None:
        views.append(key)
        return there.get(key)

    monkeypatch.setattr(Service, "source_ranges", counted)
    context: Any = SimpleNamespace(provider=cloud, store=SimpleNamespace(view=view))
    controller = firewall.new_controller(context)
    for key in ("default/large", *["default/b"] * 3):
        controller.map_to_keys("Service", key)
        await controller.reconcile("firewall")
    assert views == ["default/large", *["default/b"] * 3]
    assert reads == ["large"]


async def test_services_with_thousands_of_ranges_are_read_in_many_turns_and_hold_up_no_other(
    do: DigitalOcean, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of six, or a snapshot of ten, took a second of one turn."""
    there = {f"many/{name}": published(name, port(8000)) for name in map(str, range(9))}
    queue, read = WorkQueue(), Reading.of

    def take_long(*asked: Any) -> Reading:
        time.sleep(0.002)
        return read(*asked)

    monkeypatch.setattr(firewall, "READING", 0.001)
    monkeypatch.setattr(Reading, "of", take_long)
    context: Any = SimpleNamespace(
        provider=cloud, store=SimpleNamespace(view=lambda _, key: there.get(key)), queue=queue
    )
    controller = firewall.new_controller(context)

    def change(*keys: str) -> None:
        for key in keys:
            controller.map_to_keys("Service", key)

    change(*there)
    assert await turns_during(controller.reconcile("firewall")) > len(there)
    assert controller.status() == {"objects": 9}
    there["few/web"] = service("web", type="NodePort", ports=[port(80)])
    change(*there)
    for _ in range(2):
        await controller.reconcile("firewall")
    assert queue.is_busy
    (record,) = do.firewalls.values()
    assert "30080" in {rule["ports"] for rule in record["inbound_rules"]}


async def test_without_a_firewall_it_is_not_needed(do: DigitalOcean) -> None:
    plain = await Started(config_of(do)).start()
    context: Any = SimpleNamespace(provider=plain)
    with pytest.raises(NotNeeded, match="no firewall is configured"):
        firewall.new_controller(context)


def test_it_is_on_where_nothing_turns_it_off() -> None:
    """As upstream: its variables are enough."""
    assert "firewall" in provided_by("digitalocean")
    assert with_defaults(("*",), "digitalocean") == ("*", "firewall")
    assert with_defaults(("-firewall", "*"), "digitalocean") == ("-firewall", "*")
    assert with_defaults(("cloud-node-controller",), "digitalocean") == ("cloud-node-controller",)
    assert with_defaults(("*",), "aws") == ("*",)


def test_of_ports_without_number_few_are_looked_at() -> None:
    """A Service that is served may ask for all there are, of which none needs a node port."""
    looked_at = list[int]()
    ports = [{"port": number, "protocol": "TCP"} for number in range(1, 40_000)]
    asked = published("many", *ports, **{f"{PREFIX}type": "REGIONAL_NETWORK"})

    def may_open(number: int) -> bool:
        looked_at.append(number)
        return True

    assert opened(readings([asked]), may_open)
    assert len(looked_at) < 1000
