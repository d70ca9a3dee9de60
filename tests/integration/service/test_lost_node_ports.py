"""A node port that a Service gave up, and another has now: nothing of the first leads there."""

import asyncio

import pytest

from ccm.errors import (
    CloudError,
    ImplementedElsewhere,
    RetryAfter,
)
from ccm.model.objects import MOST_ENTRIES, Json
from ccm.model.service import Feature, Service
from tests.support.virtual_time import VirtualLoop
from workers.executor import LONG, SHARE
from workers.performer import REVERTED, REVERTS

from .cloud import Balancers
from .objects import annotated, node, port, service, spec
from .world import World, asked_ports, running, running_with

pytestmark = pytest.mark.virtual_time

N1 = node("n1")
ALL, NONE = frozenset(Feature), frozenset[Feature]()
HOSTILE = "default/hostile"
TEXTS = {str(at): "" for at in range(MOST_ENTRIES)}
RANGES = spec(loadBalancerSourceRanges=["10.0.0.0/8"])
INVALID_RANGES = spec(loadBalancerSourceRanges=["10.0.0.0/33"])


@pytest.mark.parametrize("by_cloud", [True, False])
async def test_a_refused_service_leads_to_no_node_port_that_is_anothers_now(by_cloud: bool) -> None:
    """Its former listeners stay, and the other Service may have other source ranges."""
    async with running_with(service(), N1, restrict_service_annotations=True) as w:
        w.balancers.refused = "no such flavor" if by_cloud else ""
        refused = {} if by_cloud else {"example.com/certificate": "theirs"}
        await w.change(spec(ports=[port(80, nodePort=31000)]), annotated(refused))
        await w.put(service(spec(type="NodePort", ports=[port(81)]), name="beside"))
        assert w.balancers.of(w.service()), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.balancers.of(w.service()) is None
        assert not w.service().ingress
        w.balancers.refused = ""
        await w.change(spec(ports=[port(80, nodePort=31001)]), without_annotations)
        assert w.service().ingress
        assert w.balancers.of(w.service())


async def test_a_refused_service_leads_to_no_node_port_where_nodes_check_another_now() -> None:
    """What answers there names the other, and its port would be open to all."""
    async with running_with(service(), N1) as w:
        w.balancers.refused = "no such flavor"
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert w.balancers.of(w.service()), "it serves as it is"
        local = spec(externalTrafficPolicy="Local", healthCheckNodePort=30080, ports=[port(81)])
        await w.put(service(local, name="other"))
        assert w.balancers.of(w.service()) is None
        assert not w.service().ingress


async def test_a_node_port_that_a_service_does_not_have_takes_no_balancer_from_another() -> None:
    """An ExternalName may name any number, which no one gave it."""
    async with running_with(service(), N1) as w:
        w.balancers.refused = "no such flavor"
        hostile = service(spec(type="ExternalName", ports=[port(80)]), name="hostile")
        await w.put(hostile)
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert w.service().ingress
        assert w.balancers.of(w.service()), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.balancers.of(w.service()) is None


async def test_a_service_that_is_handed_over_leads_to_no_node_port_that_is_anothers_now() -> None:
    """As by an annotation for another controller: until then it serves as it is."""
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [ImplementedElsewhere("there") for _ in range(3)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        await w.put(service(spec(type="NodePort", ports=[port(81)]), name="beside"))
        assert w.balancers.of(w.service()), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.balancers.of(w.service()) is None


async def test_who_takes_the_finalizer_away_leads_to_no_node_port_that_is_anothers_now() -> None:
    """All the time: it is written again minutes later, and the load balancer is changed first."""
    async with running_with(service(), N1) as w:
        for _ in range(REVERTS + 1):
            await w.change(without_finalizers)
        assert not w.service().has_finalizer, "its write waits"
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert asked_ports(w) == [port(80)]
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert asked_ports(w) == [port(80, nodePort=31000)]
        assert not w.service().has_finalizer
        await asyncio.sleep(REVERTED.most)
        await w.later()
        assert w.service().has_finalizer


async def test_what_cannot_be_changed_leads_to_no_node_port_that_is_anothers_now() -> None:
    """As with a security group that AWS does not know, which may yet come."""
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [CloudError("no such group") for _ in range(3)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert backends(w), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert not backends(w)
        w.balancers.failures["ensure"] = []
        await w.later()
        assert backends(w)


async def test_what_always_waits_leads_to_no_node_port_that_is_anothers_now() -> None:
    """As on Azure, for an address of another Service that never has a load balancer."""
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [RetryAfter("it moves", 2.0) for _ in range(99)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        assert backends(w), "it serves as it is"
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert not backends(w)
        w.balancers.failures["ensure"] = []
        await w.later()
        assert backends(w)


class Pooled(Balancers):
    """All load balancers have the same backends."""

    def __init__(self) -> None:
        super().__init__()
        self.withdrawn = list[str]()

    async def withdraw(self, service: Service) -> None:
        self.withdrawn.append(service.name)


async def test_what_cannot_be_changed_takes_no_backends_from_who_has_the_same() -> None:
    """On Azure, one Service emptied the pool of all for as long as its own change failed."""
    balancers = Pooled()
    async with running_with(service(), N1, balancers=balancers) as w:
        w.balancers.failures["ensure"] = [CloudError("denied") for _ in range(3)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert balancers.withdrawn
        assert not w.balancers.named("update")


async def test_what_cannot_be_deleted_leads_to_no_node_port_that_is_anothers_now() -> None:
    """As with deletion protection, which a tenant may turn on."""
    async with running_with(service(), N1) as w:
        w.balancers.failures["delete"] = [CloudError("it is protected") for _ in range(3)]
        await w.change(spec(type="ClusterIP", ports=[]))
        assert backends(w)
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert not backends(w)


def without_finalizers(raw: Json) -> None:
    raw["metadata"].pop("finalizers", None)


def backends(w: World) -> frozenset[tuple[str, str]]:
    (record,) = w.balancers.records.values()
    return record.backends


async def test_who_changes_while_its_balancer_is_given_up_keeps_no_address() -> None:
    """Refused before and after: then the status would never be written again."""
    async with running_with(service(), N1) as w:
        w.balancers.refused = "no such flavor"
        await w.change(spec(ports=[port(80, nodePort=31000)]))

        def change() -> None:
            w.balancers.before_write = lambda: None
            w.cluster.put(w.changed(annotated({"example.com/colour": "red"})))

        w.balancers.before_write = change
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.service().annotations
        assert w.balancers.of(w.service()) is None
        assert not w.service().ingress


async def test_who_is_handed_over_and_loses_its_balancer_keeps_no_address() -> None:
    async with running_with(service(), N1) as w:
        w.balancers.failures["ensure"] = [ImplementedElsewhere("there") for _ in range(5)]
        await w.change(spec(ports=[port(80, nodePort=31000)]))
        await w.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        assert w.balancers.of(w.service()) is None
        assert not w.service().ingress


def without_annotations(raw: Json) -> None:
    raw["metadata"].pop("annotations")


async def test_a_namespace_that_rests_leads_to_no_node_port_that_is_anothers_now() -> None:
    """Its Services take long to compare, and others have their turns."""
    async with running_with(service(), N1) as w:
        w.controller._shares._count("default", False, 1000.0)
        w.balancers.refused = "no such flavor"
        w.cluster.put(service(spec(ports=[port(80, nodePort=31000)])))
        await asyncio.sleep(1)
        assert w.balancers.of(w.service()), "nothing of it is looked at"
        w.cluster.put(service(spec(type="NodePort", ports=[port(80)]), name="other"))
        await asyncio.sleep(1)
        assert w.balancers.of(w.service()) is None


class Heavy(Balancers):
    """What Services ask for takes a while to read, and fails, once that is so."""

    is_heavy, times = False, 0

    def check_service(self, service: Service) -> None:
        if self.is_heavy and service.type == "LoadBalancer":
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.compute(2 * LONG)
            self.times += 1
            raise CloudError("no such group")


async def test_who_leads_to_another_for_good_has_no_more_time_than_its_namespace() -> None:
    """What another has now may be the tenant's own as well, and the change always fails."""
    ports, balancers = range(80, 90), Heavy()
    many = [service(spec(ports=[port(number)]), name=f"web-{number}") for number in ports]
    async with running_with(*many, N1, balancers=balancers) as w:
        balancers.is_heavy = True
        for number, item in zip(ports, many, strict=True):
            moved = spec(ports=[port(80, nodePort=31000 + number)])
            other = service(spec(type="NodePort", ports=[port(number)]), name=f"other-{number}")
            w.cluster.put(w.changed(moved, key=item.key), other)
        await asyncio.sleep(100)
        balancers.times = 0
        for number in range(2000):
            changed = annotated({"x": str(number)})
            w.cluster.put(w.changed(changed, key=many[number % len(many)].key))
            await asyncio.sleep(LONG)
        assert 0 < balancers.times < 2000 * SHARE


TOO_LARGE = {
    "text": spec(loadBalancerIP="\1" * 720_000),  # six times as many bytes of JSON
    "labels": lambda raw: raw["metadata"].update(labels=TEXTS),
    "annotations": annotated(TEXTS),
    "ports": spec(ports=[port(at, nodePort=0) for at in range(1, MOST_ENTRIES + 1)]),
}


@pytest.mark.parametrize("kind", TOO_LARGE)
async def test_a_service_that_is_too_large_to_be_known_leads_nowhere(kind: str) -> None:
    """What it asked for before would stay for good: nodes serve what it asks for now."""
    async with running_with(service(), N1) as w:
        await w.change(spec(ports=[port(81)]), TOO_LARGE[kind])
        await _leads_nowhere(w)
        await w.change(spec(ports=[port(80)], loadBalancerIP=""), without_texts)
        assert w.balancers.of(w.service())
        assert w.service().ingress
    w.cluster.put(w.changed(spec(ports=[port(81)]), TOO_LARGE[kind]))
    async with running(w.restarted()) as again:
        await _leads_nowhere(again)


def without_texts(raw: Json) -> None:
    raw["metadata"].update(labels={}, annotations={})


async def _leads_nowhere(w: World) -> None:
    assert w.balancers.of(w.service()) is None
    assert not w.service().ingress
    assert not w.service().has_finalizer
    assert any("leave some out" in message for _, message in await w.reported("Warning"))
