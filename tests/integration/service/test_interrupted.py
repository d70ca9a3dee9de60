"""A crash after any write, to the cluster or to the cloud, still ends with the same balancers."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.errors import CloudError, KubernetesError, Refused, RetryAfter
from ccm.model.service import Feature, Service
from tests.support.cluster import Cluster
from tests.support.nodes import Tweak, with_finalizer, with_provider_id
from tests.support.properties import examples

from .cloud import Balancers, Record
from .objects import (
    KEY,
    being_deleted,
    finalized,
    node,
    port,
    service,
    spec,
    typed,
    with_status,
    with_uid,
)
from .world import World

PROPERTY = examples(200)
SUPPORTED = frozenset(Feature) - {Feature.SOURCE_RANGES}


class Cut(BaseException):
    """The process dies here."""


@dataclass(frozen=True)
class Case:
    """What is there at the start, and what someone changes once the first start is cut off."""

    tweaks: tuple[Tweak, ...]
    changes: tuple[Tweak, ...]
    record: Record | None
    nodes: int
    cut_after: int


tweaks = st.lists(
    st.sampled_from(
        [
            being_deleted,
            typed("ClusterIP"),
            typed("NodePort"),
            spec(ports=[port(80), port(443)]),
            spec(loadBalancerSourceRanges=["10.0.0.0/8"]),
            with_status("198.51.100.1"),
            with_finalizer("theirs"),
        ]
    ),
    max_size=3,
    unique=True,
).map(tuple)
records = st.one_of(
    st.none(),
    st.builds(
        Record,
        owner=st.just("uid-of-web"),
        ip=st.just("192.0.2.1"),
        asked=st.sampled_from([None, {"type": "LoadBalancer"}]),
        backends=st.sampled_from(
            [frozenset(), frozenset({("n0", "fake://n0"), ("x", "fake://x")})]
        ),
    ),
)
cases = st.builds(
    Case,
    tweaks=tweaks,
    changes=tweaks,
    record=records,
    nodes=st.integers(0, 2),
    cut_after=st.integers(0, 8),
)


class Life:
    """A cluster and a cloud that outlive the starts of the worker, and can cut one off."""

    def __init__(self, case: Case) -> None:
        self.cluster, self.balancers = Cluster(), Balancers()
        self.balancers.supported_features = SUPPORTED
        # What has a balancer has our finalizer: that is how any start leaves it.
        marked = (finalized,) if case.record else ()
        self.cluster.put(service(*marked, *case.tweaks))
        for number in range(case.nodes):
            self.cluster.put(node(f"n{number}"))
        if case.record:
            self.balancers.records["auid-of-web"] = case.record
        self.left = 10**9
        self.cluster.before_write = self.balancers.before_write = self._count

    def _count(self) -> None:
        if self.left <= 0:
            raise Cut
        self.left -= 1

    @property
    def service(self) -> Service | None:
        return self.cluster.service(KEY) if ("Service", KEY) in self.cluster.objects else None

    def change(self, changes: Iterable[Tweak]) -> None:
        """Someone else changes the Service, if it is still there."""
        if changed := self.service:
            for tweak in changes:
                tweak(changed.raw)
            self.cluster.put(changed)

    async def start(self, writes: int = 10**9) -> None:
        """One start of the worker, which dies instead of making another write than these."""
        self.left = writes
        w = World(cluster=self.cluster, balancers=self.balancers)
        w.connect()
        for _ in range(10):
            before = (dict(self.cluster.objects), dict(self.balancers.records))
            try:
                await w.controller.reconcile(KEY)
            except Cut:
                return
            except RetryAfter:  # nothing is written, and it is asked for again
                continue
            except Refused:
                pass
            if before == (self.cluster.objects, self.balancers.records):
                return
        pytest.fail("it does not come to rest")

    def check_no_orphan(self) -> None:
        """Any balancer of ours has a Service that waits for it."""
        for record in self.balancers.records.values():
            assert self.service, "a balancer without a Service"
            assert self.service.uid == record.owner
            assert self.service.has_finalizer, "a balancer without a finalizer"

    def result(self) -> tuple[Any, ...]:
        """What users see."""
        seen = self.service
        records = {name: replace(r, ip="") for name, r in self.balancers.records.items()}
        return (seen and (sorted(seen.finalizers), bool(seen.ingress)), records)


async def lived(case: Case, *cuts: int) -> Life:
    """The end of a life whose first starts were cut off after so many writes each.

    Another start writes nothing.
    """
    life = Life(case)
    for cut in cuts:
        await life.start(cut)
        life.check_no_orphan()
    life.change(case.changes)
    await life.start()
    life.check_no_orphan()
    written = life.cluster.writes, life.balancers.writes
    await life.start(0)
    assert (life.cluster.writes, life.balancers.writes) == written
    return life


@PROPERTY
@given(cases)
def test_an_interrupted_life_ends_as_an_uninterrupted_one(case: Case) -> None:
    quiet = replace(case, changes=())
    whole = asyncio.run(lived(quiet))
    cut = asyncio.run(lived(quiet, case.cut_after, 1))
    assert cut.result() == whole.result()


@PROPERTY
@given(cases)
def test_a_change_between_two_starts_leaves_neither_orphan_nor_remains(case: Case) -> None:
    life = asyncio.run(lived(case, case.cut_after))
    seen = life.service
    if seen is None or seen.is_being_deleted or seen.type != "LoadBalancer":
        assert life.balancers.records == {}
        assert seen is None or not seen.has_finalizer
    elif seen.features() <= SUPPORTED:
        (record,) = life.balancers.records.values()
        assert record.asked
        assert record.asked["ports"] == seen.spec["ports"]
        assert len(record.backends) == case.nodes
        assert seen.ingress == [{"ip": record.ip}]


@PROPERTY
@given(
    st.lists(st.sampled_from(["fail", "wait", "refuse", "conflict", "restart"]), max_size=6),
    cases,
)
def test_failures_on_the_way_change_nothing_about_the_end(faults: list[str], case: Case) -> None:
    """One worker, or several, through failures of every class, with the Service replaced once."""

    async def live() -> Life:
        life = Life(case)
        w = World(cluster=life.cluster, balancers=life.balancers)
        w.connect()
        for fault in [*faults, "none"]:
            if fault == "restart":
                w = World(cluster=life.cluster, balancers=life.balancers)
                w.connect()
            failures: dict[str, Exception] = {
                "fail": CloudError("boom"),
                "wait": RetryAfter("busy", 1.0),
                "refuse": Refused("no"),
            }
            for operation in ("ensure", "update", "delete"):
                life.balancers.failures[operation] = [failures[fault]] if fault in failures else []
            if fault == "conflict":
                life.cluster.failures = [KubernetesError(409, "Conflict", "changed", None)]
            await _settle(w)
            life.cluster.failures = []
        life.balancers.failures.clear()
        w.cluster.put(service(finalized, with_uid("another"), *case.changes))
        w.cluster.put(node("n9", with_provider_id("fake://n9")))
        await _settle(w)
        return life

    life = asyncio.run(live())
    changed = life.service
    for record in life.balancers.records.values():
        assert changed
        assert record.owner == "another"
        assert changed.has_finalizer
    if changed and not changed.is_being_deleted and changed.type == "LoadBalancer":
        assert bool(life.balancers.records) == (changed.features() <= SUPPORTED)


async def _settle(w: World) -> None:
    """Take up the key as often as a queue would, and then the nodes."""
    w.controller._backends.is_debounced = True
    for _ in range(8):
        try:
            await w.controller.reconcile(KEY)
        except (CloudError, KubernetesError):
            continue
