"""Load balancers on a real Incus: whose they are, their addresses, and requests through them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ccm.cloud.interface import ListsOwned
from ccm.cloud.testkit.harness import node, port, service
from ccm.errors import CloudError, Denied, NoRoom, Refused, RetryAfter
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.incus.lb.load_balancers import IncusLoadBalancers
from ccm.providers.incus.lb.request import ADDRESSES
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import Lab, until
from tests.providers.incus.conftest import Started

ROOT = "/networks/ovn0/load-balancers"
NODES = ("node-1", "node-2", "node-3")
DUAL: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}


class Balancers:
    """The provider's load balancers with a cluster of the lab's nodes."""

    def __init__(self, lab: Lab, cloud: Started) -> None:
        assert isinstance(cloud.load_balancers, IncusLoadBalancers)
        self.lab, self.cloud, self.part = lab, cloud, cloud.load_balancers
        self.nodes = {name: node_of(lab, name) for name in NODES}

    async def ensure(self, asked: Service, *names: str) -> Balancer:
        nodes = [self.nodes[name] for name in names or NODES]
        made: Balancer = await self._until_done(lambda: self.part.ensure(asked, nodes))
        return made

    async def update(self, asked: Service, *names: str) -> None:
        nodes = [self.nodes[name] for name in names or NODES]
        await self._until_done(lambda: self.part.update_nodes(asked, nodes))

    async def _until_done(self, work: Any) -> Any:
        """As a controller does: an instance that has just started has no port for a moment."""
        for _ in range(20):
            try:
                return await work()
            except RetryAfter as wait:
                await asyncio.sleep(wait.seconds)
        return await work()

    def records(self) -> dict[str, Json]:
        return {one["listen_address"]: one for one in self.lab.get(ROOT, recursion=1)}

    def answering(self, address: str, *names: str, number: int = 80) -> None:
        """Requests are answered by exactly these nodes, and none is lost."""
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{number}/"
        until(lambda: self.lab.answers(url, 24).keys() == {*names}, f"{names} answer", 60)


def node_of(lab: Lab, name: str, project: str = "") -> Node:
    record = lab.instance(name, project)
    return node(name, f"incus://{record['project']}/{record['config']['volatile.uuid']}")


@pytest.fixture
def clean(lab: Lab) -> Iterator[None]:
    remove_all(lab)
    yield
    remove_all(lab)


def remove_all(lab: Lab) -> None:
    for path in (ROOT, "/networks/ovn0/forwards"):
        for one in lab.get(path, recursion=1):
            lab.delete(f"{path}/{one['listen_address']}")
    stopped = [name for name in NODES if lab.instance(name)["status"] == "Stopped"]
    lab.set_state(stopped, "start")


@pytest.fixture
async def balancers(lab: Lab, cloud: Started, clean: None) -> Balancers:
    return Balancers(lab, cloud)


def writes(cloud: Started) -> list[str]:
    return [one for one in cloud.operations if not one.startswith(("Get", "List"))]


async def test_requests_are_balanced_over_all_nodes(balancers: Balancers) -> None:
    """IN33, IN34, IN35, IN53, IN54."""
    made = await balancers.ensure(service(), "node-1", "node-2")
    (way,) = made.ingress
    balancers.answering(way.ip, "node-1", "node-2")
    assert await balancers.ensure(service(), "node-1", "node-2") == made
    assert writes(balancers.cloud) == ["CreateLoadBalancer"]
    await balancers.update(service(), "node-2", "node-3")
    balancers.answering(way.ip, "node-2", "node-3")
    assert await balancers.ensure(service(ports=[port(81)]), "node-2", "node-3") == made
    balancers.answering(way.ip, "node-2", "node-3", number=81)
    balancers.answering(way.ip, "DOWN")
    assert writes(balancers.cloud)[1:] == ["UpdateLoadBalancer"] * 2
    await balancers.part.delete(service())
    balancers.answering(way.ip, "DOWN", number=81)
    assert not balancers.records()


async def test_a_stopped_instance_is_no_backend_until_it_runs(
    lab: Lab, balancers: Balancers
) -> None:
    """IN36, IN37."""
    (way,) = (await balancers.ensure(service())).ingress
    lab.set_state(["node-3"], "stop")
    balancers.answering(way.ip, "node-1", "node-2")
    await balancers.update(service(), "node-1", "node-3")
    balancers.answering(way.ip, "node-1")
    lab.set_state(["node-1"], "stop")
    await balancers.update(service(), "node-1", "node-3")
    assert balancers.records()[way.ip]["ports"] == []
    assert (await balancers.ensure(service(), "node-1", "node-3")).ingress == (way,)
    lab.set_state(["node-1", "node-3"], "start")
    await balancers.update(service(), "node-1", "node-3")
    balancers.answering(way.ip, "node-1", "node-3")


async def test_a_node_that_does_not_answer_is_left_out(lab: Lab, balancers: Balancers) -> None:
    """IN38."""
    (way,) = (await balancers.ensure(service())).ingress
    balancers.answering(way.ip, *NODES)
    inside = ("incus", "--", "exec", "node-2", "--project", "k8s", "--")
    end = "read line <$p/cmdline; case $line in httpd*30080*) kill ${p#/proc/};; esac"
    lab.run(*inside, "sh", "-c", f"for p in /proc/[0-9]*; do {end}; done; true")
    try:
        balancers.answering(way.ip, "node-1", "node-3")
    finally:
        lab.run(*inside, "httpd", "-p", "30080", "-h", "/www")
    balancers.answering(way.ip, *NODES)


async def test_both_ip_families_are_served(balancers: Balancers) -> None:
    """IN40."""
    made = await balancers.ensure(service(**DUAL))
    four, six = (way.ip for way in made.ingress)
    assert ":" not in four
    balancers.answering(four, *NODES)
    balancers.answering(six, *NODES)
    assert (await balancers.ensure(service())).ingress == made.ingress[:1]
    assert [*balancers.records()] == [four]
    (way,) = (await balancers.ensure(service("six", ipFamilies=["IPv6"]))).ingress
    balancers.answering(way.ip, *NODES)


async def test_a_client_keeps_its_address(lab: Lab, balancers: Balancers) -> None:
    """IN51."""
    local = service(externalTrafficPolicy="Local", healthCheckNodePort=32000)
    (way,) = (await balancers.ensure(local, "node-1")).ingress
    assert balancers.records()[way.ip]["config"]["healthcheck"] == "true"
    balancers.answering(way.ip, "node-1")
    seen = lab.answers(f"http://{way.ip}/cgi-bin/who", 4)
    assert seen == {"node-1 sees [::ffff:10.88.0.1]": 4}


async def test_tcp_and_udp_share_a_balancer(balancers: Balancers) -> None:
    """IN39."""
    both = [port(80), port(80, "UDP")]
    (way,) = (await balancers.ensure(service(ports=both))).ingress
    record = balancers.records()[way.ip]
    assert [one["protocol"] for one in record["ports"]] == ["tcp", "udp"]
    assert len(record["backends"]) == len(NODES)
    balancers.answering(way.ip, *NODES)


# Addresses.


async def test_an_address_may_be_asked_for(lab: Lab, balancers: Balancers) -> None:
    """IN41, IN42."""
    asked = service("web", {ADDRESSES: "192.0.2.9,2001:0db8:2:0::11"}, **DUAL)
    made = await balancers.ensure(asked)
    assert [way.ip for way in made.ingress] == ["192.0.2.9", "2001:db8:2::11"]
    lab.call("POST", "/networks/ovn0/forwards", {"listen_address": "192.0.2.77"})
    for address, why in (
        ("192.0.2.9", "is another's"),
        ("192.0.2.77", "is another's"),
        ("192.0.2.255", "none of the ranges"),
        ("10.0.0.1", "none of the ranges"),
    ):
        with pytest.raises(Refused, match=why):
            await balancers.ensure(service("other", loadBalancerIP=address))
    moved = await balancers.ensure(service(loadBalancerIP="192.0.2.10"))
    assert [way.ip for way in moved.ingress] == ["192.0.2.10"]
    assert [*balancers.records()] == ["192.0.2.10"], "the others are gone"


async def test_a_full_range_heals_when_an_address_is_free(
    lab: Lab, gateway: Gateway, clean: None
) -> None:
    """IN43."""
    config = lab.config(f"unix://{gateway.socket}", more="address-range = 192.0.2.0/30")
    cloud = await Started(config).start()
    balancers = Balancers(lab, cloud)
    used = [(await balancers.ensure(service(name))).ingress[0].ip for name in ("a", "b")]
    assert sorted(used) == ["192.0.2.1", "192.0.2.2"]
    with pytest.raises(NoRoom, match=r"192\.0\.2\.0/30"):
        await balancers.ensure(service("c"))
    await balancers.part.delete(service("a"))
    assert (await balancers.ensure(service("c"))).ingress[0].ip == used[0]
    await cloud.close()


async def test_services_that_come_at_once_never_get_one_address(
    lab: Lab, gateway: Gateway, clean: None
) -> None:
    """IN44: Incus may give one to both of two requests, so only one is made at a time."""
    config = lab.config(f"unix://{gateway.socket}", more="address-range = 192.0.2.8/29")
    cloud = await Started(config).start()
    balancers = Balancers(lab, cloud)
    made = await asyncio.gather(*(balancers.ensure(service(f"s{number}")) for number in range(6)))
    assert len({one.ingress[0].ip for one in made}) == 6
    assert len(balancers.records()) == 6
    await cloud.close()


async def test_an_address_that_another_cluster_takes_meanwhile_is_not_ours(
    balancers: Balancers, gateway: Gateway
) -> None:
    """IN44: what Incus refuses is tried elsewhere."""
    refusal = {"type": "error", "error": "Listen address overlaps with another network or NIC"}
    gateway.set_rules({"method": "POST", "count": 3, "status": 500, "body": refusal})
    (way,) = (await balancers.ensure(service())).ingress
    assert [*balancers.records()] == [way.ip]
    assert writes(balancers.cloud) == ["CreateLoadBalancer"] * 4


async def test_a_balancer_that_incus_has_twice_is_reported(
    balancers: Balancers, gateway: Gateway
) -> None:
    """Seen when two created one address at once; the list is replayed."""
    (way,) = (await balancers.ensure(service())).ingress
    twice = {"type": "sync", "metadata": 2 * [balancers.records()[way.ip]]}
    gateway.set_rules({"path": r"/load-balancers\?", "status": 200, "body": twice})
    with pytest.raises(CloudError, match=f"at {way.ip} twice"):
        await balancers.ensure(service())


async def test_a_balancer_deleted_by_hand_comes_back_with_its_address(
    lab: Lab, balancers: Balancers
) -> None:
    """IN47."""
    (way,) = (await balancers.ensure(service())).ingress
    asked = service()
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": way.ip}]}}
    lab.delete(f"{ROOT}/{way.ip}")
    assert (await balancers.ensure(asked)).ingress == (way,)
    lab.delete(f"{ROOT}/{way.ip}")
    await balancers.part.delete(asked)


# Whose they are.


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"user.ccm.cluster": "kit", "user.ccm.service-uid": "another"},
        {"user.ccm.cluster": "another", "user.ccm.service-uid": service().uid},
    ],
)
async def test_a_balancer_without_both_marks_is_never_touched(
    lab: Lab, balancers: Balancers, config: dict[str, str]
) -> None:
    """IN45, IN46."""
    body: Json = {"listen_address": "192.0.2.5", "config": config}
    lab.call("POST", ROOT, body)
    before = balancers.records()
    asked = service(loadBalancerIP="192.0.2.5")
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.5"}]}}
    assert await balancers.part.get(asked) is None
    for work in (balancers.ensure(asked), balancers.update(asked)):
        with pytest.raises(Refused):
            await work
    await balancers.part.delete(asked)
    assert balancers.records() == before
    assert writes(balancers.cloud) == []
    assert isinstance(balancers.part, ListsOwned)
    owned = [one.service_uid for one in await balancers.part.owned()]
    assert owned == [one for one in ("another",) if config.get("user.ccm.cluster") == "kit"]


async def test_what_people_change_is_restored_once_and_what_they_add_stays(
    lab: Lab, balancers: Balancers
) -> None:
    """IN50, IN55: records are written whole; a part of one would end the request unanswered."""
    (way,) = (await balancers.ensure(service())).ingress
    record = balancers.records()[way.ip]
    record["config"] |= {"user.team": "a", "healthcheck.interval": "60"}
    lab.call("PUT", f"{ROOT}/{way.ip}", {**record, "description": "mine", "ports": []})
    await balancers.ensure(service())
    await balancers.ensure(service())
    now = balancers.records()[way.ip]
    assert now["config"]["user.team"] == "a"
    assert (now["config"]["healthcheck.interval"], len(now["ports"])) == ("5", 1)
    assert writes(balancers.cloud) == ["CreateLoadBalancer", "UpdateLoadBalancer"]


# Failures.


@pytest.mark.parametrize("rule", [{"after": True, "drop": True}, {"after": True, "status": 500}])
async def test_a_lost_answer_makes_no_second_balancer(
    balancers: Balancers, gateway: Gateway, rule: dict[str, object]
) -> None:
    """IN23."""
    gateway.set_rules({"method": "POST", "count": 1, **rule})
    with pytest.raises(CloudError):
        await balancers.ensure(service())
    [made] = balancers.records()
    await balancers.ensure(service())
    assert [*balancers.records()] == [made], "the first one was given up for another"
    gateway.set_rules({"method": "DELETE", "count": 1, **rule})
    with pytest.raises(CloudError):
        await balancers.part.delete(service())
    await balancers.part.delete(service())
    assert not balancers.records()


async def test_a_balancer_that_someone_deletes_meanwhile_is_made_again(
    balancers: Balancers, gateway: Gateway
) -> None:
    """IN47: it is not refused for good."""
    (way,) = (await balancers.ensure(service(), "node-1")).ingress
    gone = {"type": "error", "error": "Load balancer not found"}
    gateway.set_rules({"method": "PUT", "count": 1, "status": 404, "body": gone})
    with pytest.raises(RetryAfter):
        await balancers.part.ensure(service(), [balancers.nodes["node-2"]])
    assert (await balancers.ensure(service(), "node-2")).ingress == (way,)


async def test_an_empty_list_of_instances_empties_no_balancer(
    balancers: Balancers, gateway: Gateway
) -> None:
    """Newer versions answer so to a certificate that lost its rights; that answer is replayed."""
    (way,) = (await balancers.ensure(service())).ingress
    before = balancers.records()
    empty = {"type": "sync", "metadata": []}
    gateway.set_rules(
        {"path": r"/instances\?", "status": 200, "body": empty},
        {"path": "/projects/", "status": 403},
    )
    for work in (balancers.ensure(service()), balancers.update(service())):
        with pytest.raises(Denied, match="GetProject: 403"):
            await work
    gateway.set_rules()
    assert balancers.records() == before
    balancers.answering(way.ip, *NODES)


async def test_services_that_come_together_share_their_reads(balancers: Balancers) -> None:
    start = len(balancers.cloud.operations)
    await asyncio.gather(*(balancers.ensure(service(f"s{number}")) for number in range(10)))
    calls = balancers.cloud.operations[start:]
    assert len(balancers.records()) == 10
    assert calls.count("ListLoadBalancers") == 1 + 10
    assert calls.count("ListInstances") == calls.count("GetNetwork") == 1
