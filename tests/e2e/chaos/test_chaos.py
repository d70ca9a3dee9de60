"""Replicas under everything at once: in the end all is right, and nobody wrote out of turn."""

import os
import time
from dataclasses import replace

import pytest

from ccm.kube.client import Kube
from tests.e2e.chaos.life import living
from tests.e2e.chaos.processes import FLAGS, WORKERS
from tests.e2e.chaos.script import NothingToChange, Script, Size, Step
from tests.e2e.chaos.troubles import Troubles
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
RECOVERY_TIMEOUT = 60.0
PATIENT = ("--node-deletion-confirmation-period=5s",)
"""Longer than a list of the cloud is stale."""
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
            (4, self._meddle),
            (4, self._write),
            (4, self._hold),
            (3, self._stale),
            (1, self._revoke),
            (2, self._reload),
            (3, self._end_together),
        )

    def rest(self) -> list[Step]:
        """What lets everything come to rest."""
        ends = [Step("api", "fix"), Step("troubles", "rest"), Step("processes", "rest")]
        return [*ends, *super().rest(), Step("troubles", "reload")]

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

    def _meddle(self) -> Step:
        """The Lease is slow, or writes are to be tried again in an hour."""
        if self._chance.random() < 0.5:
            return self._trouble("slow_lease", self._chance.choice((0.5, 2.0, 6.0)), 10.0)
        return self._trouble("retry_after_an_hour", 0.2)

    def _write(self) -> Step:
        """Another client writes what is ours to write."""
        seconds = self._chance.choice((1.0, 4.0))
        if self._chance.random() < 0.5:
            return self._trouble("write_node", self._some_node("running"), seconds)
        return self._trouble("write_service", self._some_service("LoadBalancer"), seconds)

    def _hold(self) -> Step:
        """Another controller's finalizer holds what is to go."""
        seconds = self._chance.choice((2.0, 8.0))
        if self._chance.random() < 0.5:
            return self._trouble("hold_node", self._some_node("running", "stopped"), seconds)
        return self._trouble("hold_service", self._some_service("LoadBalancer"), seconds)

    def _stale(self) -> Step:
        return self._trouble("stale", self._chance.choice((0.5, 1.5)))

    def _revoke(self) -> Step:
        return self._trouble(
            "revoke", self._chance.choice((20.0, 40.0, 60.0) if IS_LONG else (4.0,))
        )

    def _reload(self) -> Step:
        return self._trouble("credentials", self._chance.choice((0.5, 3.0)))

    def _end_together(self) -> Step:
        """Machines end while a load balancer that names them is made."""
        if len(self._nodes) < 6:
            raise NothingToChange
        names = [self._some_node("running") for _ in range(3)]
        ends = [self._gone("end", name, "terminate").args for name in dict.fromkeys(names)]
        return Step("nodes", "end_together", (ends,))

    def _trouble(self, what: str, *args: object) -> Step:
        return Step("troubles", what, args)


class ApiFaults:
    """What is wrong with the API server before the replicas; it lasts until `fix`."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    async def fail(self, name: str) -> None:
        self._proxy.inject(FAULTS[name])

    async def fix(self) -> None:
        self._proxy.clear()


async def test_under_everything_at_once_nothing_is_lost_and_no_one_writes_out_of_turn(
    cluster: RealCluster, where: Where, cloud: Cloud, api: Kube, proxy: FaultProxy
) -> None:
    print(f"CCM_CHAOS_SEED={SEED} CCM_CHAOS_SECONDS={SECONDS:g}")
    script = ChaosScript(SEED)
    env = Environment(cluster, cloud, where, api, cloud.admin(), NodeWatcher(api))
    election = Election(env, f"ccm-chaos-{SEED}", proxy=proxy)

    def start(name: str) -> Supervisor:
        return Replica(name, election, *FLAGS, *PATIENT)

    began, steps = time.monotonic(), 0
    async with living(start, cloud, api, REPLICAS) as life:
        life.actors["api"] = ApiFaults(proxy)
        life.actors["troubles"] = Troubles(election, proxy, life, cloud.config)
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
