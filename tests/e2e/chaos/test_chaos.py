"""Replicas under everything at once: in the end all is right, and nobody wrote out of turn."""

import os
import time
from dataclasses import replace

import pytest

from ccm.kube.client import Kube
from tests.e2e.chaos.life import living
from tests.e2e.chaos.processes import FLAGS, WORKERS
from tests.e2e.chaos.script import Script, Size, Step
from tests.support.cluster_nodes import NodeWatcher
from tests.support.environment import Environment, until_renewed
from tests.support.fault_proxy import (
    REFUSED,
    Fault,
    FaultProxy,
    error_event,
    failure,
    late,
    reset_in_the_middle,
)
from tests.support.kube.cluster import RealCluster
from tests.support.replicas import Election, Replica
from tests.support.running import IS_LONG, Cloud, Supervisor, Where

SEED = int(os.environ.get("CCM_CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("CCM_CHAOS_SECONDS", "600" if IS_LONG else "10"))
SIZE = Size(nodes=60, services=30, volumes=40) if IS_LONG else Size(10, 5, 5)
REPLICAS = 3 if IS_LONG else 2
ROUND = 120.0  # seconds of chaos after which everything has to become right
RECOVERY_TIMEOUT = 180.0
FAULTS = {
    "410": Fault(failure(410, "Expired")),
    "410-event": Fault(error_event(410, "Expired")),
    "429": Fault(failure(429, "TooManyRequests", **{"Retry-After": "1"}), is_for_all=True),
    "500": Fault(failure(500, "InternalError"), is_for_all=True),
    "refused": replace(REFUSED, is_for_all=True),
    "reset": Fault(each_line=reset_in_the_middle),
    "late": Fault(each_line=late),
}
"""What may be wrong with the API server, as the replicas see it."""

pytestmark = [pytest.mark.real, *([pytest.mark.timeout(3600)] if IS_LONG else [])]


class ChaosScript(Script):
    """What happens in a life, and beside it what happens to processes and the API server."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._verbs = (
            *self._verbs,
            (6, self._suspend),
            (6, self._break_api),
            (6, self._fix_api),
            (3, self._scale),
            (2, self._freeze),
            (3, self._allow),
            (6, self._flap),
            (4, self._repair),
        )

    def rest(self) -> list[Step]:
        """What lets everything come to rest."""
        return [Step("api", "fix"), Step("processes", "rest"), *super().rest()]

    def _suspend(self) -> Step:
        what = self._chance.choice(("supervisor", "all", *WORKERS))
        return Step("processes", "suspend", (what, self._chance.choice((0.3, 1.5, 4.0, 7.0))))

    def _break_api(self) -> Step:
        return Step("api", "fail", (self._chance.choice(sorted(FAULTS)),))

    def _fix_api(self) -> Step:
        return Step("api", "fix")

    def _scale(self) -> Step:
        return Step("processes", "scale", (self._chance.randint(1, 3),))

    def _freeze(self) -> Step:
        return Step("processes", "deletions", ("freeze",))

    def _allow(self) -> Step:
        return Step("processes", "deletions", ("allow",))

    def _flap(self) -> Step:
        """A Service changes its mind twice at once."""
        name = self._some_service("LoadBalancer")
        return Step("users", "flap", (name,))


class ApiFaults:
    """What is wrong with the API server before the replicas; it lasts until `fix`."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    async def fail(self, name: str) -> None:
        self._proxy.inject(FAULTS[name])

    async def fix(self) -> None:
        self._proxy.clear()


async def test_under_everything_at_once_nothing_is_lost_and_nobody_writes_out_of_turn(
    cluster: RealCluster, where: Where, cloud: Cloud, api: Kube, proxy: FaultProxy
) -> None:
    print(f"CCM_CHAOS_SEED={SEED} CCM_CHAOS_SECONDS={SECONDS:g}")
    script = ChaosScript(SEED)
    env = Environment(cluster, cloud, where, api, cloud.admin(), NodeWatcher(api))
    election = Election(env, f"ccm-chaos-{SEED}", proxy=proxy)

    def start(name: str) -> Supervisor:
        return Replica(name, election, *FLAGS)

    began, steps = time.monotonic(), 0
    async with living(start, cloud, api, REPLICAS) as life:
        life.actors["api"] = ApiFaults(proxy)
        await life.nodes.add_foreign("foreign", network=4000)
        for step in script.beginning(SIZE):
            await life.take(step)
        await life.until_done(RECOVERY_TIMEOUT)
        while time.monotonic() < began + SECONDS:
            rest_at = time.monotonic() + min(ROUND, SECONDS)
            while time.monotonic() < rest_at:
                await life.take(script.draw())
                steps += 1
            for step in script.rest():
                await life.take(step)
            resting = time.monotonic()
            await life.until_done(RECOVERY_TIMEOUT)
            print(f"right after {time.monotonic() - resting:.1f} s")
        await life.admin.reset_counters()
        await until_renewed(api, election.lease)
        counters = await life.admin.counters()
        assert counters["writes"] == 0, counters["rows"]
        assert await life.wrong() == []
    history = election.history()
    print(f"{steps} steps, {len(history.work)} writes, {len(history.terms())} terms")
    assert list(history.strays()) == []
