"""What alive and ready mean: progress, and everything in place."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm.decide.children import Life, WorkerState
from ccm.kube.client import Kube
from ccm.kube.watch import ListStarted, WatchEvent, WatchFailed
from ccm.model.objects import Projection
from ccm.settings import Settings
from ccm.supervisor.child import Child
from ccm.supervisor.children import Children
from ccm.supervisor.health_checks import HealthChecks
from ccm.supervisor.informer import InformerTimings, SharedInformer
from ccm.supervisor.leadership import Leadership
from ccm.supervisor.progress import Progress


@dataclass
class Supervisor:
    """The state that the checks look at, all well at first."""

    settings: Settings = field(default_factory=Settings)
    stuck: str | None = None
    is_overdue: bool = False
    is_stopping: bool = False
    refusal: str = ""
    leads_until: float = 0.0
    silent: float = 0.0
    standstill: float = 0.0
    trouble: str = ""
    children: list[Child] = field(
        default_factory=lambda: [Child("node-0", "node", Life(WorkerState.RUNNING))]
    )

    def status(self, now: float) -> Any:
        kind = {
            "silent_seconds": self.silent,
            "seconds_since_event": self.standstill,
            "last_error": self.trouble,
        }
        return {"kinds": {"Node": kind, "Service": {**kind, "silent_seconds": 0.0}}}

    def failing(self) -> dict[str, dict[str, str]]:
        """For both kinds of checks, those that fail."""
        leader = SimpleNamespace(lease_name="ccm", is_overdue=lambda: self.is_overdue)
        checks = HealthChecks(
            self.settings,
            cast(
                Leadership,
                SimpleNamespace(
                    electors=lambda: [leader],
                    until=lambda _: self.leads_until,
                    refusal=self.refusal,
                ),
            ),
            cast(Progress, SimpleNamespace(what_is_stuck=lambda: self.stuck)),
            cast(SharedInformer, self),
            cast(Children, self.children),
            lambda: self.is_stopping,
        )
        looked = {"alive": checks.alive(), "ready": checks.ready()}
        return {
            name: {check.name: why for check in of_kind if (why := check.check())}
            for name, of_kind in looked.items()
        }


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


QUIET = Settings().watch_idle_limit + 15


@pytest.mark.parametrize(
    ("state", "dead", "unready"),
    [
        pytest.param({}, {}, {}, id="well"),
        pytest.param({"stuck": "it stands"}, {"progress": "it stands"}, {}, id="stuck"),
        pytest.param(
            {"is_overdue": True},
            {"leaderElection": "failed election to renew leadership on lease ccm"},
            {},
            id="election",
        ),
        pytest.param(
            {"is_overdue": True, "settings": Settings(leader_elect=False)}, {}, {}, id="no-election"
        ),
        pytest.param(
            {"silent": 400.0, "standstill": 200.0},
            {"watches": "nothing from the watch of Node for 200 s, Service for 200 s"},
            {"freshness": "nothing from the watch of Node for 400 s"},
            id="watch",
        ),
        pytest.param(
            {"standstill": 200.0, "trouble": "429"},
            {"watches": "nothing from the watch of Node for 200 s 429, Service for 200 s 429"},
            {},
            id="watch-in-trouble",
        ),
        pytest.param({"silent": QUIET, "standstill": QUIET}, {}, {}, id="quiet-cluster"),
        pytest.param(
            {"silent": 300.0, "trouble": "no connection"},
            {},
            {"freshness": "nothing from the watch of Node for 300 s no connection"},
            id="api-server-away",
        ),
        pytest.param({"refusal": "403"}, {}, {"access": "403"}, id="refused"),
        pytest.param({"is_stopping": True}, {}, {"shutdown": "it stops"}, id="stopping"),
    ],
)
def test_who_makes_no_progress_is_not_alive_and_who_cannot_act_is_not_ready(
    state: dict[str, Any], dead: dict[str, str], unready: dict[str, str]
) -> None:
    assert Supervisor(**state).failing() == {"alive": dead, "ready": dead | unready}


@pytest.mark.parametrize("state", list(WorkerState))
def test_a_worker_that_is_not_in_place_is_not_ready_and_costs_no_life(
    supervisor: Supervisor, state: WorkerState
) -> None:
    supervisor.children[0].life = Life(state)
    in_place = {WorkerState.STANDBY, WorkerState.RUNNING, WorkerState.SKIPPED}
    lack = {} if state in in_place else {"node-0": f"worker is {state}"}
    assert supervisor.failing() == {"alive": {}, "ready": lack}


@pytest.mark.parametrize(("is_joining", "is_ready"), [(False, False), (True, True)])
def test_of_a_leader_a_worker_in_standby_is_in_place_only_while_others_own_its_keys(
    supervisor: Supervisor, is_joining: bool, is_ready: bool
) -> None:
    supervisor.leads_until = float("inf")
    supervisor.children[0].life = Life(WorkerState.STANDBY)
    supervisor.children[0].is_joining = is_joining
    assert (supervisor.failing()["ready"] == {}) is is_ready


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_hand_over_is_no_gap(supervisor: Supervisor, is_synced: bool) -> None:
    child = supervisor.children[0]
    child.life = Life(WorkerState.DRAINING)
    child.successor = cast(Any, SimpleNamespace(is_synced=is_synced))
    assert bool(supervisor.failing()["ready"]) is not is_synced


@pytest.mark.virtual_time
async def test_a_watch_that_fails_moves_and_one_that_does_nothing_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def changes(kube: Any, path: str, *_: object) -> AsyncIterator[WatchEvent]:
        while path.endswith("services"):
            yield WatchFailed("no connection")
            await asyncio.sleep(0.01)
        yield ListStarted()
        await asyncio.Event().wait()

    monkeypatch.setattr("ccm.supervisor.informer.list_and_watch", changes)
    feed = SharedInformer(cast(Kube, None), lambda *_: True, InformerTimings(list_debounce=0.0))
    feed.store(Projection("Node", (("metadata", "uid"),)))
    feed.store(Projection("Service", (("metadata", "uid"),)))

    def quiet(kind: str) -> float:
        facts = feed.status(time.monotonic())["kinds"][kind]
        return float(facts["seconds_since_event"])

    await asyncio.sleep(60.0)
    assert quiet("Node") > 59.0
    assert quiet("Service") < 1.0
    assert feed.status(time.monotonic())["kinds"]["Service"]["silent_seconds"] > 59.0
    await feed.close()
