"""One lease or two: who may act under which, in virtual time."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from ccm.controllers import LIFECYCLE, NODE, ROUTE, SERVICE, is_enabled
from ccm.kube.client import Kube
from ccm.kube.lease import LeaseClient
from ccm.model.objects import Json
from ccm.settings import Settings
from ccm.settings.leader_migration import LeaderMigration
from ccm.supervisor.leader_election import WorkerProbes
from ccm.supervisor.leadership import Leadership

from .lease_world import CONFIG, ApiServer, Fate, Replica, Request, Wire

pytestmark = pytest.mark.virtual_time

MIGRATION = LeaderMigration("second", ((SERVICE, "*"), (LIFECYCLE, "*"), (ROUTE, "someone-else")))


def now() -> float:
    return asyncio.get_running_loop().time()


class BothLeases:
    """A client for two Leases; each lies in a world of its own."""

    def __init__(self, main: Wire, second: Wire) -> None:
        self._wires = {"ccm": main, "second": second}

    def lane(self) -> Kube:
        return cast(Kube, self)

    def _to(self, path: str, body: Json) -> Wire:
        name = path.rpartition("/")[2]
        return self._wires.get(name) or self._wires.get(
            body["metadata"]["name"], self._wires["ccm"]
        )

    async def request(self, method: str, path: str, timeout: float) -> Json:
        return await self._to(path, {}).request(method, path, timeout=timeout)

    async def put(self, path: str, body: Json, timeout: float) -> Json:
        return await self._to(path, body).put(path, body, timeout)

    async def post(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        return await self._to(path, body).post(path, body, timeout)


class World:
    """Our replica, and the API server with its two Leases."""

    def __init__(self, migration: LeaderMigration | None = MIGRATION, **settings: Any) -> None:
        self.main, self.second = ApiServer(), ApiServer()
        self.to_main, self.to_second = Wire(self.main), Wire(self.second)
        file = LeaseClient(
            cast(Kube, BothLeases(self.to_main, self.to_second)),
            "ns",
            "ccm",
            "us",
            CONFIG.lease_duration,
        )
        chosen = Settings(**settings)
        if migration:
            chosen = migration.without_unowned(chosen)
        self.down: dict[str, str] = {}
        probes = WorkerProbes(down=lambda: self.down)
        self.ours = Leadership(chosen, file, migration, lambda _: None, now, probes)

    def may(self, controller: str) -> bool:
        return self.ours.until(controller) > now()

    def acting(self) -> set[str]:
        return {controller for controller in ("node", "service", "route") if self.may(controller)}

    def node_work(self) -> set[str]:
        """What a node worker that starts now does."""
        listed = self.ours.settings_for("node").controllers
        return {name for name in (NODE, LIFECYCLE) if is_enabled(name, listed)}

    def start(self) -> None:
        self.elections = {name: asyncio.create_task(run) for name, run in self.ours.elections()}

    async def rival(self, server: ApiServer) -> Replica:
        """Another component that holds this Lease, and renews it."""
        rival = Replica(server, "rival", lease="second" if server is self.second else "ccm")
        rival.start()
        await asyncio.sleep(1.0)
        assert rival.leader.is_leading()
        return rival


async def test_without_a_migration_one_lease_counts_for_all() -> None:
    w = World(migration=None)
    w.start()
    await asyncio.sleep(1.0)
    assert w.acting() == {"node", "service", "route"}
    assert w.node_work() == {NODE, LIFECYCLE}
    assert w.second.log == []
    assert list(w.elections) == ["leadership"]


async def test_what_migrates_waits_until_the_other_component_lets_go() -> None:
    w = World()
    rival = await w.rival(w.second)
    w.start()
    await asyncio.sleep(60.0)
    assert w.may("node")
    assert w.ours.until("service") == 0
    await rival.release()
    await asyncio.sleep(1.0)
    assert w.may("service")
    assert w.second.holder() == w.main.holder() == "us"


async def test_a_standby_leaves_the_second_lease_alone() -> None:
    w = World()
    rival = await w.rival(w.main)
    w.start()
    await asyncio.sleep(60.0)
    assert w.second.log == []
    assert not w.may("node")
    w.to_second.normally = Request(there=1.0)
    await rival.release()
    for _ in range(30):
        await asyncio.sleep(0.1)
        assert now() - w.ours.checked_at < CONFIG.retry_period + 1.0  # it did not stand still
    assert w.second.holder() == "us"


async def test_a_migrated_controller_acts_only_as_long_as_both_leases_are_renewed() -> None:
    w = World()
    w.start()
    await asyncio.sleep(3.0)
    w.to_second.normally = Request(Fate.LOST)
    await asyncio.sleep(5.0)
    assert w.may("service")
    assert w.ours.until("service") < w.ours.until("route")
    await asyncio.sleep(5.1)
    assert not w.may("service")
    assert w.may("route")
    w.to_second.normally = Request()
    await asyncio.sleep(12.0)
    assert w.may("service")


async def test_without_the_main_lease_nothing_acts() -> None:
    w = World()
    w.start()
    await asyncio.sleep(3.0)
    w.to_main.normally = Request(Fate.LOST)
    await asyncio.sleep(10.1)
    assert w.acting() == set()
    w.to_main.normally = Request()
    await asyncio.sleep(12.0)
    assert w.acting()


async def test_a_node_worker_does_what_stays_and_later_what_migrates() -> None:
    w = World()
    rival = await w.rival(w.second)
    w.start()
    await asyncio.sleep(5.0)
    assert w.node_work() == {NODE}
    assert w.may("node")
    await rival.release()
    await asyncio.sleep(1.0)
    assert w.node_work() == {NODE, LIFECYCLE}
    w.to_second.normally = Request(Fate.LOST)
    await asyncio.sleep(10.1)
    assert not w.may("node")  # it removes nodes by now
    assert w.node_work() == {NODE, LIFECYCLE}


async def test_a_node_worker_whose_controllers_all_migrate_waits_as_others_do() -> None:
    w = World(replace(MIGRATION, leaders=((NODE, "*"), (LIFECYCLE, "*"))))
    await w.rival(w.second)
    w.start()
    await asyncio.sleep(5.0)
    assert not w.may("node")
    assert w.node_work() == {NODE, LIFECYCLE}


async def test_a_controller_that_is_turned_off_causes_no_hand_over() -> None:
    w = World(controllers=(NODE,))
    rival = await w.rival(w.second)
    w.start()
    await asyncio.sleep(5.0)
    assert w.may("node")
    before = w.ours.settings_for("node")
    await rival.release()
    await asyncio.sleep(1.0)
    assert w.ours.settings_for("node") == before
    assert w.node_work() == {NODE}


async def test_both_leases_are_given_back_the_main_one_last() -> None:
    w = World()
    w.start()
    await asyncio.sleep(3.0)
    await w.ours.release()
    await asyncio.wait_for(asyncio.gather(*w.elections.values()), CONFIG.retry_period)
    assert w.main.holder() == w.second.holder() == ""
    assert w.second.log[-1][0] < w.main.log[-1][0]


async def test_an_election_that_stands_still_is_noticed_in_either_lease() -> None:
    w = World()
    w.start()
    await asyncio.sleep(3.0)
    w.elections["leader migration"].cancel()
    await asyncio.sleep(30.0)
    assert now() - w.ours.checked_at >= 30.0


async def test_with_a_migration_the_leases_are_never_offered() -> None:
    for migration, count in ((None, 1), (MIGRATION, 0)):
        w = World(migration, leader_elect_offer_after=60.0)
        w.start()
        w.down = {"node-0": "no credentials"}
        await asyncio.sleep(100.0)
        assert [event["type"] for event in w.main.events].count("Warning") == count
        assert w.may("node")
        assert w.main.holder() == "us"
