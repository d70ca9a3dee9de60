"""Octavia at work: when it is looked at, and by how few calls, without a cloud."""

import asyncio
from contextlib import suppress
from typing import Any, cast
from urllib.parse import parse_qsl
from uuid import UUID

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.errors import CloudError, NotFound, Refused, RetryAfter, Unanswered
from ccm.model.objects import Json
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.config import BalancerSection
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb.annotations import PREFIX
from ccm.providers.openstack.lb.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.lb.names import Names, Role
from ccm.providers.openstack.lb.octavia import PENDING_KEPT, UNANSWERED, Octavia
from ccm.providers.openstack.lb.waiting import LATE, Waiting


class Clock:
    """What Octavia is at work on, and a clock that goes on as far as it says to wait."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waiting = Waiting(lambda: self.now)

    def first_wait(self, balancer_id: str) -> float:
        """Seconds until the first look at what Octavia was just asked for."""
        with pytest.raises(RetryAfter) as later:
            self.waiting.retry_when_done(balancer_id)
        return later.value.seconds

    def looks(self, state: str, seconds: float) -> list[float]:
        """The waits before looks at what takes so many seconds, from the first one."""
        self.waiting.begin("lb", "CreateLoadBalancer", "tag")
        began, waits = self.now, [self.first_wait("lb")]
        while True:
            self.now += waits[-1]
            is_done = self.now - began >= seconds
            try:
                self.waiting.check(
                    {"id": "lb", "provisioning_status": "ACTIVE" if is_done else state}
                )
            except RetryAfter as later:
                waits.append(later.seconds)
            else:
                return waits


def test_what_is_at_work_is_looked_at_when_it_is_likely_done_then_more_and_more_rarely() -> None:
    """OS42: how long it takes is learnt, here 60 s; but not while much else is at work."""
    clock = Clock()
    assert len(clock.looks("PENDING_CREATE", 60.0)) > 3
    for _ in range(4):
        clock.looks("PENDING_CREATE", 60.0)
    assert all(len(clock.looks("PENDING_CREATE", 60.0)) <= 3 for _ in range(5))
    clock.looks("PENDING_CREATE", 0.0)
    assert sum(clock.looks("PENDING_CREATE", 60.0)[:1]) <= 60.0
    known = clock.looks("PENDING_CREATE", 1.0)
    clock.waiting.begin("other", "UpdateMembers")
    clock.looks("PENDING_CREATE", 500.0)
    clock.waiting.end("other")
    assert clock.looks("PENDING_CREATE", 1.0)[0] <= known[0]


def test_one_creation_that_takes_long_has_no_other_looked_at_much_later() -> None:
    """The next 25 were ready after 4 s, and found so after two minutes and less."""
    clock = Clock()
    usual = clock.looks("PENDING_CREATE", 4.0)[0]
    clock.looks("PENDING_CREATE", 300.0)
    assert clock.looks("PENDING_CREATE", 4.0)[0] <= 2 * usual


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_what_takes_long_for_its_size_teaches_nothing(is_deleted: bool) -> None:
    """A tenant's load balancer of thousands of ports would have all others looked at later."""
    fake, clock = FakeOctavia(), Clock()
    api: Any = fake
    octavia = Octavia(api, lambda: clock.now)
    names = Names.of(service("large"), Cluster("kubernetes"))
    listeners = [{"id": str(number)} for number in range(2000)]
    own = {"name": names.balancer, "tags": names.tags(Role.OWNER)}
    body = {"loadbalancer": {**own, "listeners": listeners}}
    made = await octavia.create(names, ApiCall("CreateLoadBalancer", "", "POST", "/", body))
    call = "CreateLoadBalancer"
    if is_deleted:
        octavia.waiting.end(made["id"])
        call = "DeleteLoadBalancer"
        await octavia.change(made, ApiCall(call, "", "DELETE", "/"))
    usual = octavia.waiting._first(call)
    for state in ("PENDING_UPDATE", "ACTIVE"):
        clock.now += 60.0
        fake.state = state
        with suppress(RetryAfter):
            octavia.waiting.check(await octavia.look(made["id"]) or {})
    assert octavia.waiting._first(call) == usual


def test_what_octavia_never_ends_is_reported() -> None:
    """OS44."""
    clock = Clock()
    with pytest.raises(CloudError, match="see what Octavia waits for"):
        clock.looks("PENDING_UPDATE", 1000.0)
    assert 600 < clock.now - 100 < 620


class FakeOctavia:
    """The requests that looking needs; what is made is at work until `state` says otherwise."""

    def __init__(self) -> None:
        self.records: dict[str, Json] = {}
        self.calls: list[str] = []
        self.state = "PENDING_CREATE"

    async def project_id(self) -> str:
        return "project"

    async def make(self, call: ApiCall) -> Json:
        if call.body is None:
            return {}
        key = str(len(self.records))
        self.records[key] = {"id": key, **call.body["loadbalancer"]}
        return {"loadbalancer": self._shown(key)}

    def _shown(self, balancer_id: str) -> Json:
        return {**self.records[balancer_id], "provisioning_status": self.state}

    async def get(self, operation: str, service: str, path: str) -> Json:
        self.calls.append(operation)
        await asyncio.sleep(0)
        balancer_id = path.rpartition("/")[2]
        if balancer_id not in self.records:
            raise NotFound(path)
        return {"loadbalancer": self._shown(balancer_id)}

    async def pages(self, operation: str, *rest: str, **query: str) -> list[Json]:
        self.calls.append(operation)
        await asyncio.sleep(0)
        wanted = set(query["tags-any"].split(","))
        return [self._shown(key) for key, one in self.records.items() if wanted & {*one["tags"]}]


async def create(octavia: Octavia, name: str) -> str:
    names = Names.of(service(name), Cluster("kubernetes"))
    body = {"loadbalancer": {"name": names.balancer, "tags": names.tags(Role.OWNER)}}
    made = await octavia.create(names, ApiCall("CreateLoadBalancer", "", "POST", "/", body))
    return str(made["id"])


async def state(octavia: Octavia, balancer_id: str) -> str:
    found = await octavia.look(balancer_id)
    return str(found["provisioning_status"]) if found else "gone"


async def test_one_list_tells_of_all_that_are_waited_for() -> None:
    fake, clock = FakeOctavia(), Clock()
    api: Any = fake
    octavia = Octavia(api, lambda: clock.now)
    made = [await create(octavia, f"web-{number}") for number in range(3)]
    for now in ("PENDING_CREATE", "ACTIVE"):
        clock.now += 1.0
        fake.state = now
        assert {*await asyncio.gather(*(state(octavia, one) for one in made))} == {now}
    assert fake.calls == ["ListLoadBalancers"] * 2
    del fake.records[made[2]]
    clock.now += 10.0
    assert await state(octavia, made[2]) == "gone"
    assert fake.calls[2:] == ["ListLoadBalancers", "GetLoadBalancer"], "a list alone is no proof"
    assert made[2] not in octavia.waiting


async def test_who_waits_for_a_list_that_takes_long_has_it_too() -> None:
    fake, clock = FakeOctavia(), Clock()
    api: Any = fake
    octavia, pages = Octavia(api, lambda: clock.now), fake.pages

    async def slow(*arguments: str, **query: str) -> list[Json]:
        found = await pages(*arguments, **query)
        clock.now += 2.0
        return found

    fake.pages = slow  # type: ignore[method-assign]
    made = [await create(octavia, f"web-{number}") for number in range(3)]
    clock.now += 1.0
    await asyncio.gather(*(state(octavia, one) for one in made))
    assert fake.calls == ["ListLoadBalancers"]


def test_what_is_at_work_together_is_looked_at_together() -> None:
    clock, ids = Clock(), [f"lb-{number}" for number in range(5)]
    due: dict[str, float] = {}
    for one in ids:
        clock.waiting.begin(one, "CreateLoadBalancer", "tag")
        due[one] = clock.now + clock.first_wait(one)
        clock.now += 0.7
    lists: list[float] = [0.0]
    while clock.now < 130.0:
        one = min(due, key=due.__getitem__)
        clock.now = due[one]
        if clock.now > lists[-1] + PENDING_KEPT:
            lists.append(clock.now)
        with pytest.raises(RetryAfter) as later:
            clock.waiting.check({"id": one, "provisioning_status": "PENDING_CREATE"})
        due[one] = clock.now + later.value.seconds
    assert len(lists) <= 20


async def test_what_was_seen_before_a_change_says_nothing_after_it() -> None:
    fake, clock = FakeOctavia(), Clock()
    api: Any = fake
    octavia = Octavia(api, lambda: clock.now)
    made = [await create(octavia, name) for name in ("web", "other")]
    fake.state = "ACTIVE"
    assert await state(octavia, made[0]) == "ACTIVE"
    clock.now += 0.1
    change = ApiCall("UpdateMembers", "", "PUT", "/")
    await octavia.change(fake.records[made[0]], change)
    fake.state = "PENDING_UPDATE"
    clock.now += 0.1
    assert await state(octavia, made[0]) == "PENDING_UPDATE"


async def test_one_that_is_waited_for_alone_is_asked_for_by_its_id() -> None:
    fake: Any = FakeOctavia()
    octavia = Octavia(fake)
    await state(octavia, await create(octavia, "web"))
    assert fake.calls == ["GetLoadBalancer"]


async def test_a_creation_without_an_answer_is_not_sent_again_for_a_while() -> None:
    """OS38: what comes of it is in no list yet."""
    fake, clock = FakeOctavia(), Clock()
    api: Any = fake
    octavia, make = Octavia(api, lambda: clock.now), fake.make

    async def never(call: ApiCall) -> Json:
        raise Unanswered("no answer")

    fake.make = never  # type: ignore[method-assign]
    with pytest.raises(Unanswered):
        await create(octavia, "web")
    fake.make = make  # type: ignore[method-assign]
    with pytest.raises(RetryAfter, match="on its way"):
        await create(octavia, "web")
    assert await create(octavia, "other")
    clock.now += UNANSWERED
    assert await create(octavia, "web")


async def test_a_creation_without_an_answer_is_awaited_before_its_service_goes() -> None:
    """OS38: no list has it yet, and nothing would delete it once the Service is gone."""
    fake, cluster = Project(), Cluster("kubernetes")
    clock, api, names = Clock(), cast(Any, fake), Names.of(service("web"), cluster)
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, cluster)
    octavia = balancers._octavia
    octavia._clock, make = lambda: clock.now, fake.make

    async def never(call: ApiCall) -> Json:
        raise Unanswered("no answer")

    fake.make = never  # type: ignore[method-assign]
    with pytest.raises(Unanswered):
        await create(octavia, "web")
    fake.make, fake.state = make, "ACTIVE"  # type: ignore[method-assign]
    with pytest.raises(RetryAfter, match="on its way"):
        await balancers.delete(service("web"))
    fake.records["late"] = {"id": "late", "name": names.balancer, "tags": names.tags(Role.OWNER)}
    with pytest.raises(RetryAfter):
        await balancers.delete(service("web"))
    await balancers.delete(service("web"))
    assert not fake.records
    await balancers.delete(service("web"))  # as the controller does, twice


class FailingOctavia:
    """Answers every list with this error, or with these load balancers."""

    def __init__(self, answer: CloudError | list[Json]) -> None:
        self.answer = answer

    async def project_id(self) -> str:
        return "project"

    async def pages(self, *arguments: str, **query: str) -> list[Json]:
        if isinstance(self.answer, CloudError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("error", [Refused("400 no"), NotFound("404 no such path")])
async def test_a_read_that_failed_does_not_mean_that_there_is_no_load_balancer(
    error: CloudError,
) -> None:
    """Only one of the Service's name that is not its is none of its."""
    api: Any = FailingOctavia(error)
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, Cluster("kubernetes"))
    with pytest.raises(CloudError, match=str(error)):
        await balancers.get(service())
    names = Names.of(service(), Cluster("kubernetes"))
    api.answer = [{"id": "lb", "name": names.balancer, "provisioning_status": "ACTIVE"}]
    assert await balancers.get(service()) is None


class Project(FakeOctavia):
    """One that has floating IPs beside load balancers, and deletes what it is told to at once."""

    floating_ips: tuple[Json, ...] = ()
    ports: tuple[Json, ...] = ()
    hides_all = False  # in lists of load balancers

    async def pages(self, operation: str, *rest: str, **query: str) -> list[Json]:
        found = await super().pages(operation, *rest, **{"tags-any": "", **query})
        return [] if self.hides_all else found

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        self.calls.append(operation)
        if operation == "ListFloatingIps":
            return [*self.floating_ips]
        asked = dict(parse_qsl(target.partition("?")[2]))
        addresses = asked.get("fixed_ips", "").removeprefix("ip_address=")
        return [it for it in self.ports if asked.get("id") == it["id"] or it["at"] == addresses]

    async def get(self, operation: str, service: str, path: str) -> Json:
        if operation == "GetFloatingIp":
            return {"floatingip": self.floating_ips[0]}
        return await super().get(operation, service, path)

    async def make(self, call: ApiCall) -> Json:
        if call.operation == "DeleteFloatingIp":
            self.floating_ips = ()
        elif call.method == "DELETE":
            del self.records[call.path.partition("?")[0].rpartition("/")[2]]
        return await super().make(call)


async def test_a_load_balancer_that_is_wanted_again_while_one_is_deleted_is_deleted_later() -> None:
    """A tenant who changes the type of a Service there and back would leave one each time."""
    fake, names = Project(), Names.of(service(), Cluster("kubernetes"))
    fake.state = "ACTIVE"
    api: Any = fake
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, Cluster("kubernetes"))
    own = {"tags": names.tags(Role.OWNER), "name": names.balancer}
    fake.records["first"] = {"id": "first", **own}
    with pytest.raises(RetryAfter):
        await balancers.delete(service())
    with pytest.raises(Refused, match="no Node determines the subnet"):
        await balancers.ensure(service(), [])
    fake.records["second"] = {"id": "second", **own}  # as soon as there is a Node
    with pytest.raises(RetryAfter):
        await balancers.delete(service())
    await balancers.delete(service())
    assert not fake.records


async def test_of_a_shared_load_balancer_it_is_read_whether_others_have_the_ports() -> None:
    """As of the one before the API server: after a restart nothing else is known."""
    names = Names.of(service(), Cluster("kubernetes"))

    class Shared(Project):
        async def pages(self, operation: str, *rest: str, **query: str) -> list[Json]:
            ports = ((80, names.listener_tags), (6443, ["theirs"]))
            listed = [
                {"id": f"l-{at}", "protocol": "TCP", "protocol_port": at, "tags": tags}
                for at, tags in ports
            ]
            is_of_parts = operation == "ListListeners"
            return listed if is_of_parts else await super().pages(operation, *rest, **query)

    fake = Shared()
    fake.state = "ACTIVE"
    record = {"name": "theirs", "tags": names.tags(Role.SHARER), "vip_address": "10.0.0.1"}
    fake.records["lb"] = {"id": "lb", **record}
    api = cast(Any, fake)
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, Cluster("kubernetes"))
    for number in (80, 6443):
        found = await balancers.get(service(ports=[port(number)]))
        assert found
        assert (found.is_shared, found.is_contested) == (True, number == 6443)


async def test_what_one_list_lacks_of_a_services_own_is_deleted_all_the_same() -> None:
    """The list by marks lacks it, that by its name has it, with the mark."""

    class ByName(Project):
        async def pages(self, operation: str, *rest: str, **query: str) -> list[Json]:
            return [self._shown(key) for key in self.records] if "name" in query else []

    fake, names = ByName(), Names.of(service(), Cluster("kubernetes"))
    fake.state, api = "ACTIVE", cast(Any, fake)
    fake.records["first"] = {
        "id": "first",
        "name": names.balancer,
        "tags": names.tags(Role.OWNER),
        "vip_address": "10.0.0.1",
    }
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, Cluster("kubernetes"))
    assert await balancers.get(service())
    with pytest.raises(RetryAfter):
        await balancers.delete(service())
    await balancers.delete(service())
    assert not fake.records


@pytest.mark.parametrize("is_published", [True, False])
async def test_of_two_load_balancers_of_a_service_the_one_that_is_not_in_use_goes(
    is_published: bool,
) -> None:
    """Where none certainly is in use, both stay."""
    fake, names = Project(), Names.of(service(), Cluster("kubernetes"))
    fake.state = "ACTIVE"
    own = {"tags": names.tags(Role.OWNER), "name": names.balancer, "vip_port_id": ""}
    for number in range(3):
        address = f"10.0.0.{number}"
        fake.records[str(number)] = {"id": str(number), "vip_address": address, **own}
    published, api = service(), cast(Any, fake)
    address = "10.0.0.1" if is_published else "10.0.0.9"
    published.raw["status"] = {"loadBalancer": {"ingress": [{"ip": address}]}}
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, Cluster("kubernetes"))
    for left in (["1", "2"], ["1"]) if is_published else ():
        with pytest.raises(RetryAfter):
            await balancers.ensure(published, [])
        assert [*fake.records] == left
    request = balancers._read(published)
    found, others = await balancers._members.find(request)
    assert (found and found.id, [*others]) == ("1" if is_published else "0", [])
    assert len(fake.records) == (1 if is_published else 3)


async def test_what_no_one_waits_for_any_more_is_not_looked_at_with_what_others_wait_for() -> None:
    """A second one that its Service has left is in no list later, by which it would end."""
    fake, clock = Project(), Clock()
    fake.state, api, looking = "ACTIVE", cast(Any, fake), service()
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, Cluster("kubernetes"))
    balancers._octavia.waiting._clock = lambda: clock.now
    names = Names.of(looking, Cluster("kubernetes"))
    own = {"tags": names.tags(Role.OWNER), "name": names.balancer, "vip_port_id": ""}
    fake.records["1"] = {"id": "1", "vip_address": "10.0.0.1", **own}
    looking.raw["status"] = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}
    for number in range(2, 12):
        fake.records[str(number)] = {"id": str(number), "vip_address": "10.0.0.2", **own}
        with pytest.raises(RetryAfter):
            await balancers.ensure(looking, [])
        clock.now += LATE
    assert [*fake.records] == ["1"]
    assert len(balancers._octavia.waiting.tags()) == 1
    clock.waiting = balancers._octavia.waiting
    usual = clock.waiting._first("CreateLoadBalancer")
    clock.looks("PENDING_CREATE", 60.0)
    assert clock.waiting._first("CreateLoadBalancer") > usual


@pytest.mark.parametrize(
    ("address", "description"),
    [
        ({"ip": "192.0.2.1"}, ""),
        ({"ip": "10.0.0.9"}, ""),
        ({"hostname": "192.0.2.1.nip.io"}, Names.of(service(), Cluster("kubernetes")).floating_ip),
    ],
)
async def test_a_published_service_gets_no_second_load_balancer_while_lists_lack_its_own(
    address: Json, description: str
) -> None:
    """It would have another address; one that is gone is created again."""
    fake, names = Project(), Names.of(service(), Cluster("kubernetes"))
    fake.state, fake.hides_all, balancer_id = "ACTIVE", True, str(UUID(int=1))
    fake.ports = ({"id": "vip", "name": f"octavia-lb-{balancer_id}", "at": "10.0.0.9"},)
    floating_ip = {"id": "ip", "floating_ip_address": "192.0.2.1", "port_id": "vip"}
    fake.floating_ips = ({**floating_ip, "description": description},)
    own = {"tags": names.tags(Role.OWNER), "name": names.balancer}
    fake.records[balancer_id] = {"id": balancer_id, **own}
    published = service()
    published.raw["status"] = {"loadBalancer": {"ingress": [address]}}
    api: Any = fake
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, Cluster("kubernetes"))
    with pytest.raises(CloudError, match=f"but has {balancer_id}"):
        await balancers.ensure(published, [])
    others = Names.of(service("other"), Cluster("kubernetes")).tags(Role.OWNER)
    fake.records[balancer_id]["tags"] = others
    for _ in range(2):
        with pytest.raises(Refused, match="no Node determines the subnet"):
            await balancers.ensure(published, [])
        fake.records.clear()
    fake.calls.clear()
    with pytest.raises(Refused, match="no Node determines the subnet"):
        await balancers.ensure(service(), [])
    assert {*fake.calls} == {"ListLoadBalancers"}


@pytest.mark.parametrize("is_restricted", [True, False])
async def test_a_floating_ip_is_kept_only_where_services_may_leave_one(
    is_restricted: bool,
) -> None:
    """One Service after another would take all that the project may have."""
    cluster, fake = Cluster("kubernetes"), Project()
    asked = service("web", {f"{PREFIX}keep-floatingip": "true"})
    own = {"id": "ip", "description": Names.of(asked, cluster).floating_ip}
    fake.floating_ips = (own,)
    api: Any = fake
    balancers = OctaviaLoadBalancers(api, BalancerSection(), {}, cluster, is_restricted)
    await balancers.delete(asked)
    assert bool(fake.floating_ips) is not is_restricted
