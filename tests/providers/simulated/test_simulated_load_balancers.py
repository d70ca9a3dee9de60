"""Balancers of the simulated cloud for Services: what is written, when, and what is refused."""

import asyncio

import pytest

from ccm.cloud.interface import LoadBalancers
from ccm.cloud.testkit.harness import port, service
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.cloud import Balancer, Ingress, IpMode, OwnedBalancer
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.simulated.load_balancers import PREFIX, SCHEME_ANNOTATION
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import LoadBalancer
from ccm.sandbox.cloud.server import CloudServer

from .world import World, node


def annotated(key: str, value: str) -> Json:
    """What is given to `service`, as the constants below."""
    return {"annotations": {key: value}}


LOCAL: Json = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 30100}
INTERNAL = annotated(SCHEME_ANNOTATION, "internal")
UID = service().uid
NAME = f"a{UID.replace('-', '')}"[:32]


@pytest.fixture
def hosts(w: World) -> list[Node]:
    """Nodes of three machines."""
    return [node(m.name, f"simulated://{m.id}") for m in w.cloud.state.add_machines(3)]


def record(w: World, name: str = "web") -> LoadBalancer:
    return w.cloud.state.load_balancers.get(w.balancers.name_for(service(name)))


def ids(hosts: list[Node]) -> set[str]:
    return {host.provider_id.removeprefix("simulated://") for host in hosts}


def used(cloud: CloudServer) -> tuple[int, int]:
    """Reads and writes since this was last asked."""
    counted = (cloud.counters.reads, cloud.counters.writes)
    cloud.counters.reset()
    return counted


async def test_a_balancer_is_one_read_and_one_write(w: World, hosts: list[Node]) -> None:
    part: LoadBalancers = w.balancers
    ports = [port(80), port(53, "UDP", 30053), port(53, "TCP", 30054)]
    ranges = ["10.1.2.3/8", "192.168.0.0/24"]
    asked = service(ports=ports, loadBalancerSourceRanges=ranges, **LOCAL, **INTERNAL)
    made = await w.balancers.ensure(asked, hosts)
    assert used(w.cloud) == (1, 1)
    there = record(w)
    assert part.name_for(asked) == there.name == NAME
    assert made == Balancer(NAME, (Ingress(there.ip, ip_mode=IpMode.VIP),))
    assert there.tags == {"cluster": "test", "service": UID}
    assert [(one.protocol, one.port, one.node_port) for one in there.listeners] == [
        ("TCP", 80, 30080),
        ("UDP", 53, 30053),
        ("TCP", 53, 30054),
    ]
    assert set(there.hosts) == ids(hosts)
    assert set(there.source_ranges) == {"10.0.0.0/8", "192.168.0.0/24"}
    assert there.health_check == {"path": "/healthz", "port": 30100}
    assert there.scheme == "internal"
    assert await w.balancers.get(asked) == made
    used(w.cloud)
    assert await w.balancers.ensure(asked, hosts[::-1]) == made
    assert used(w.cloud) == (1, 0)


async def test_work_in_progress_says_when_to_come_back(w: World, hosts: list[Node]) -> None:
    w.cloud.set_parameters(provisioning=0.2, deletion=0.2)
    for _ in range(2):
        with pytest.raises(RetryAfter, match="is provisioning") as wait:
            await w.balancers.ensure(service(), hosts)
        assert wait.value.seconds == 1.0
    with pytest.raises(RetryAfter):
        await w.balancers.delete(service())
    assert w.cloud.counters.writes == 1
    await asyncio.sleep(0.25)
    made = await w.balancers.ensure(service(), hosts)
    assert await w.balancers.ensure(service(**LOCAL), hosts) == made  # its address is known
    with pytest.raises(RetryAfter, match="is updating"):
        await w.balancers.ensure(service(), hosts)
    await asyncio.sleep(0.25)
    writes = w.cloud.counters.writes
    for _ in range(2):
        with pytest.raises(RetryAfter, match="is deleting"):
            await w.balancers.delete(service())
    with pytest.raises(RetryAfter, match="is deleting"):
        await w.balancers.ensure(service(), hosts)
    assert w.cloud.counters.writes == writes + 1
    await asyncio.sleep(0.25)
    await w.balancers.delete(service())
    assert w.cloud.state.load_balancers.records == {}


async def test_a_balancer_with_half_a_mark_is_listed_as_nobodys(w: World) -> None:
    w.cloud.state.load_balancers.put(LoadBalancer("half", tags={"cluster": "test"}))
    assert await w.balancers.owned() == [OwnedBalancer("half", "")]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"annotations": {SCHEME_ANNOTATION: "public"}},
            [SCHEME_ANNOTATION, "internet or internal"],
        ),
        ({"annotations": {f"{PREFIX}schema": "internal"}}, [f"{PREFIX}schema", SCHEME_ANNOTATION]),
        ({"ports": [port(80, "SCTP")]}, ["SCTP", "TCP or UDP"]),
        ({"ports": [port(80, node_port=0)]}, ["spec.allocateLoadBalancerNodePorts"]),
        ({"loadBalancerSourceRanges": ["nonsense"]}, ["spec.loadBalancerSourceRanges"]),
        ({"loadBalancerIP": "nonsense"}, ["spec.loadBalancerIP", "not an IP address"]),
    ],
)
async def test_what_the_cloud_cannot_do_is_refused_without_a_call(
    w: World, asked: Json, words: list[str]
) -> None:
    with pytest.raises(Refused) as refusal:
        await w.balancers.ensure(service(**asked), [])
    assert all(word in str(refusal.value) for word in words)
    assert w.cloud.counters.count() == 0


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (INTERNAL, "scheme .* is internet for its life"),
        ({"loadBalancerIP": "192.0.2.99"}, "ip .* for its life: delete the Service"),
    ],
)
async def test_what_is_fixed_for_life_is_refused_and_the_balancer_stays(
    w: World, asked: Json, words: str
) -> None:
    await w.balancers.ensure(service(), [])
    before = record(w)
    with pytest.raises(Refused, match=words):
        await w.balancers.ensure(service(**asked), [])
    assert record(w) == before


async def test_a_read_that_lags_behind_makes_no_second_balancer(
    w: World, hosts: list[Node]
) -> None:
    w.cloud.faults.set(CloudFault(CloudFaultKind.STALE, "ListLoadBalancers", remaining=2))
    await w.balancers.ensure(service(), hosts)
    with pytest.raises(RetryAfter, match="appeared"):
        await w.balancers.ensure(service(), hosts)
    await w.balancers.ensure(service(), hosts)
    assert len(w.cloud.state.load_balancers.records) == 1


@pytest.mark.parametrize("body", ["[]", '{"name": "x"}'])
async def test_an_odd_record_is_never_taken_for_nothing_there(w: World, body: str) -> None:
    await w.balancers.ensure(service(), [])
    before = record(w)
    w.cloud.faults.set(CloudFault(CloudFaultKind.GARBAGE, body=body))
    for attempt in (
        w.balancers.get(service()),
        w.balancers.ensure(service(), []),
        w.balancers.update_hosts(service(), []),
        w.balancers.delete(service()),
    ):
        with pytest.raises(CloudError) as failure:
            await attempt
        assert type(failure.value) is CloudError
    assert record(w) == before


def test_a_name_is_upstreams_and_never_empty(w: World) -> None:
    uid = "0a1b2c3d-0000-1111-2222-333344445555"
    name = "a0a1b2c3d00001111222233334444555"
    assert w.balancers.name_for(Service({"metadata": {"uid": uid}})) == name
    assert len(name) == 32
    assert w.balancers.name_for(Service({})) == "a"


async def test_a_host_without_a_machine_is_left_out_by_the_next_call(
    w: World, hosts: list[Node]
) -> None:
    """Not by this one: its hosts may be old by the time that it had a grant for another try."""
    w.cloud.state.machines.terminate(hosts[0].provider_id.removeprefix("simulated://"))
    with pytest.raises(RetryAfter, match="1 hosts have no machine"):
        await w.balancers.ensure(service(), hosts)
    assert used(w.cloud)[1] == 1
    await w.balancers.ensure(service(), hosts)
    assert {*record(w).hosts} == ids(hosts[1:])
    assert used(w.cloud) == (1, 1)
