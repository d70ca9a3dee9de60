"""Balancers of the simulated cloud for Services: what is written, when, and what is refused."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ccm.cloud.interface import ListsOwned, LoadBalancers
from ccm.errors import CloudError, Denied, Refused, RetryAfter, Throttled
from ccm.model.cloud import Balancer, Ingress, IpMode, OwnedBalancer
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.load_balancers import PREFIX, SCHEME_ANNOTATION, SimulatedLoadBalancers
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import LoadBalancer
from ccm.sandbox.cloud.server import CloudServer

from .doubles import node

UID = "0a1b2c3d-0000-1111-2222-333344445555"
NAME = "a0a1b2c3d00001111222233334444555"
Tweak = Callable[[Json], None]


def spec(**fields: Any) -> Tweak:
    return lambda raw: raw["spec"].update(fields)


def annotated(key: str, value: str) -> Tweak:
    return lambda raw: raw["metadata"]["annotations"].update({key: value})


def port(number: int, protocol: str = "TCP", node_port: int = 30080) -> Json:
    return {"port": number, "protocol": protocol, "nodePort": node_port}


def service(*tweaks: Tweak, uid: str = UID) -> Service:
    raw: Json = {
        "metadata": {"name": "web", "namespace": "default", "uid": uid, "annotations": {}},
        "spec": {"type": "LoadBalancer", "ports": [port(80)]},
    }
    for tweak in tweaks:
        tweak(raw)
    return Service(raw)


LOCAL = spec(externalTrafficPolicy="Local", healthCheckNodePort=30100)


@pytest.fixture
def balancers(api: SimulatedApi) -> SimulatedLoadBalancers:
    return SimulatedLoadBalancers(api, "test", page_size=2)


@pytest.fixture
def hosts(cloud: CloudServer) -> list[Node]:
    """Nodes of three machines."""
    return [node(m.name, f"simulated://{m.id}") for m in cloud.state.add_machines(3)]


def record(cloud: CloudServer, name: str = NAME) -> LoadBalancer:
    return cloud.state.load_balancers.get(name)


def ids(hosts: list[Node]) -> set[str]:
    return {host.provider_id.removeprefix("simulated://") for host in hosts}


def used(cloud: CloudServer) -> tuple[int, int]:
    """Reads and writes since this was last asked."""
    counted = (cloud.counters.reads, cloud.counters.writes)
    cloud.counters.reset()
    return counted


async def test_a_balancer_is_one_read_and_one_write(
    cloud: CloudServer, balancers: SimulatedLoadBalancers, hosts: list[Node]
) -> None:
    part: LoadBalancers = balancers
    asked = service(
        spec(ports=[port(80), port(53, "UDP", 30053), port(53, "TCP", 30054)]),
        spec(loadBalancerSourceRanges=["10.1.2.3/8", "192.168.0.0/24"]),
        LOCAL,
        annotated(SCHEME_ANNOTATION, "internal"),
    )
    made = await balancers.ensure(asked, hosts)
    assert used(cloud) == (1, 1)
    there = record(cloud)
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
    assert await balancers.get(asked) == made


@pytest.mark.parametrize(
    "tweaks",
    [
        [],
        [LOCAL],
        [spec(ports=[port(80), port(443, node_port=30443)])],
        [spec(loadBalancerSourceRanges=["192.168.0.0/24", "10.0.0.0/8"])],
        [spec(loadBalancerSourceRanges=["192.168.0.0/24", "0.0.0.0/0"])],
        [spec(loadBalancerIP="192.0.2.77")],
        [annotated(SCHEME_ANNOTATION, "internal")],
    ],
)
async def test_an_unchanged_balancer_costs_one_read_and_no_write(
    tweaks: list[Tweak],
    cloud: CloudServer,
    balancers: SimulatedLoadBalancers,
    hosts: list[Node],
) -> None:
    made = await balancers.ensure(service(*tweaks), hosts)
    used(cloud)
    again = service(*tweaks)
    again.raw["spec"]["ports"].reverse()
    assert await balancers.ensure(again, hosts[::-1]) == made
    await balancers.update_hosts(again, hosts)
    assert used(cloud) == (2, 0)


@pytest.mark.parametrize(
    ("tweak", "field", "value"),
    [
        (spec(loadBalancerSourceRanges=["10.0.0.0/8"]), "source_ranges", ("10.0.0.0/8",)),
        (LOCAL, "health_check", {"path": "/healthz", "port": 30100}),
    ],
)
async def test_a_change_is_one_write_of_what_differs_and_back(
    tweak: Tweak,
    field: str,
    value: object,
    cloud: CloudServer,
    balancers: SimulatedLoadBalancers,
    hosts: list[Node],
) -> None:
    made = await balancers.ensure(service(), hosts)
    before = record(cloud)
    used(cloud)
    assert await balancers.ensure(service(tweak), hosts) == made
    assert getattr(record(cloud), field) == value
    await balancers.ensure(service(), hosts)
    assert record(cloud) == before
    assert used(cloud) == (2, 2)


@pytest.mark.parametrize("how", ["terminate", "vanish"])
async def test_a_machine_that_is_gone_does_not_keep_the_others_out(
    how: str, cloud: CloudServer, balancers: SimulatedLoadBalancers, hosts: list[Node]
) -> None:
    await balancers.ensure(service(), hosts[:1])
    getattr(cloud.state.machines, how)(hosts[1].name)
    await balancers.update_hosts(service(), hosts)
    assert set(record(cloud).hosts) == ids([hosts[0], hosts[2]])
    await balancers.ensure(service(uid="other"), hosts)
    assert set(record(cloud, "aother").hosts) == ids([hosts[0], hosts[2]])


async def test_work_in_progress_says_when_to_come_back(
    cloud: CloudServer, balancers: SimulatedLoadBalancers, hosts: list[Node]
) -> None:
    cloud.set_parameters(provisioning=0.2, deletion=0.2)
    for _ in range(2):
        with pytest.raises(RetryAfter, match="is provisioning") as wait:
            await balancers.ensure(service(), hosts)
        assert wait.value.seconds == 1.0
    with pytest.raises(RetryAfter):
        await balancers.delete(service())
    assert cloud.counters.writes == 1
    await asyncio.sleep(0.25)
    made = await balancers.ensure(service(), hosts)
    assert await balancers.ensure(service(LOCAL), hosts) == made  # its address is known
    with pytest.raises(RetryAfter, match="is updating"):
        await balancers.ensure(service(), hosts)
    await asyncio.sleep(0.25)
    writes = cloud.counters.writes
    for _ in range(2):
        with pytest.raises(RetryAfter, match="is deleting"):
            await balancers.delete(service())
    with pytest.raises(RetryAfter, match="is deleting"):
        await balancers.ensure(service(), hosts)
    assert cloud.counters.writes == writes + 1
    await asyncio.sleep(0.25)
    await balancers.delete(service())
    assert cloud.state.load_balancers.records == {}


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"cluster": "test"},
        {"cluster": "other", "service": UID},
        {"cluster": "test", "service": "other"},
    ],
)
async def test_a_balancer_without_our_mark_is_never_touched(
    tags: dict[str, str],
    cloud: CloudServer,
    balancers: SimulatedLoadBalancers,
    hosts: list[Node],
) -> None:
    cloud.state.load_balancers.put(LoadBalancer(NAME, tags=tags))
    before = record(cloud)
    assert await balancers.get(service()) is None
    for attempt in (
        balancers.ensure(service(), hosts),
        balancers.update_hosts(service(), hosts),
        balancers.delete(service()),
    ):
        with pytest.raises(Refused, match="not touched"):
            await attempt
    assert record(cloud) == before
    assert cloud.counters.writes == 0


async def test_balancers_with_our_mark_are_listed_from_all_pages_and_no_other(
    cloud: CloudServer, balancers: SimulatedLoadBalancers
) -> None:
    cloud.set_parameters(page=2)
    cloud.state.load_balancers.put(LoadBalancer("a-nobody"))
    cloud.state.load_balancers.put(
        LoadBalancer("b-other", tags={"cluster": "other", "service": UID})
    )
    cloud.state.load_balancers.put(LoadBalancer("c-half", tags={"cluster": "test"}))
    for uid in ("one", "two"):
        await balancers.ensure(service(uid=uid), [])
    used(cloud)
    assert isinstance(balancers, ListsOwned)
    assert sorted(await balancers.owned(), key=lambda one: one.name) == [
        OwnedBalancer("aone", "one"),
        OwnedBalancer("atwo", "two"),
        OwnedBalancer("c-half", ""),
    ]
    assert used(cloud) == (3, 0)


@pytest.mark.parametrize(
    ("tweak", "words"),
    [
        (annotated(SCHEME_ANNOTATION, "public"), [SCHEME_ANNOTATION, "internet or internal"]),
        (annotated(f"{PREFIX}schema", "internal"), [f"{PREFIX}schema", SCHEME_ANNOTATION]),
        (spec(ports=[port(80, "SCTP")]), ["SCTP", "TCP or UDP"]),
        (spec(ports=[port(80, node_port=0)]), ["spec.allocateLoadBalancerNodePorts"]),
        (spec(loadBalancerSourceRanges=["nonsense"]), ["spec.loadBalancerSourceRanges"]),
        (spec(loadBalancerIP="nonsense"), ["spec.loadBalancerIP", "not an IP address"]),
    ],
)
async def test_what_the_cloud_cannot_do_is_refused_without_a_call(
    tweak: Tweak, words: list[str], cloud: CloudServer, balancers: SimulatedLoadBalancers
) -> None:
    with pytest.raises(Refused) as refusal:
        await balancers.ensure(service(tweak), [])
    assert all(word in str(refusal.value) for word in words)
    assert cloud.counters.count() == 0


@pytest.mark.parametrize(
    ("tweak", "words"),
    [
        (annotated(SCHEME_ANNOTATION, "internal"), "scheme .* is internet for its life"),
        (spec(loadBalancerIP="192.0.2.99"), "ip .* for its life: delete the Service"),
    ],
)
async def test_what_is_fixed_for_life_is_refused_and_the_balancer_stays(
    tweak: Tweak, words: str, cloud: CloudServer, balancers: SimulatedLoadBalancers
) -> None:
    await balancers.ensure(service(), [])
    before = record(cloud)
    with pytest.raises(Refused, match=words):
        await balancers.ensure(service(tweak), [])
    assert record(cloud) == before


async def test_a_full_account_is_a_refusal(
    cloud: CloudServer, balancers: SimulatedLoadBalancers, hosts: list[Node]
) -> None:
    cloud.set_parameters(max_load_balancers=1)
    await balancers.ensure(service(), hosts)
    with pytest.raises(Refused, match="QuotaExceeded"):
        await balancers.ensure(service(uid="other"), hosts)


async def test_a_read_that_lags_behind_makes_no_second_balancer(
    cloud: CloudServer, balancers: SimulatedLoadBalancers, hosts: list[Node]
) -> None:
    cloud.faults.set(CloudFault(CloudFaultKind.STALE, "GetLoadBalancer", remaining=2))
    await balancers.ensure(service(), hosts)
    with pytest.raises(RetryAfter, match="appeared"):
        await balancers.ensure(service(), hosts)
    await balancers.ensure(service(), hosts)
    assert len(cloud.state.load_balancers.records) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (CloudFault(CloudFaultKind.DENIED), Denied),
        (CloudFault(CloudFaultKind.THROTTLE, retry_after=7), Throttled),
        (CloudFault(CloudFaultKind.ERROR), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE, body="[]"), CloudError),
        (CloudFault(CloudFaultKind.GARBAGE, body='{"name": "x"}'), CloudError),
    ],
)
async def test_a_failed_read_is_never_taken_for_nothing_there(
    fault: CloudFault,
    error: type[CloudError],
    cloud: CloudServer,
    balancers: SimulatedLoadBalancers,
) -> None:
    await balancers.ensure(service(), [])
    before = record(cloud)
    cloud.faults.set(fault)
    for attempt in (
        balancers.get(service()),
        balancers.ensure(service(), []),
        balancers.update_hosts(service(), []),
        balancers.delete(service()),
    ):
        with pytest.raises(error) as failure:
            await attempt
        assert not isinstance(failure.value, Refused)
    assert record(cloud) == before


def test_a_name_is_upstreams_and_never_empty(balancers: SimulatedLoadBalancers) -> None:
    assert balancers.name_for(service()) == NAME
    assert len(NAME) == 32
    assert balancers.name_for(service(uid="")) == "a"
