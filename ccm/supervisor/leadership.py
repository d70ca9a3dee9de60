"""What we lead: the main Lease and, in a leader migration, a second one; who may act, and as what.

A worker whose controllers were assigned to the migration Lease may act while both are held. One
with a controller under each starts without those of the migration Lease, and restarts with them
when that is held, too.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from ccm.controllers import is_enabled
from ccm.kube.events import ObjectRef
from ccm.kube.lease import LeaseClient
from ccm.model.status import LeaderStatus
from ccm.settings import Settings
from ccm.settings.leader_migration import LeaderMigration, LeaseRole, disable_controllers
from ccm.supervisor.leader_election import (
    NO_PROBES,
    LeaderElectionConfig,
    LeaderElector,
    WorkerProbes,
)
from ccm.worker_names import controller_names


class Leadership:
    """Calls `on_permit` with `until` whenever a permission changed.

    To lose either Lease ends leadership.
    """

    def __init__(
        self,
        settings: Settings,
        lease: LeaseClient,
        migration: LeaderMigration | None,
        on_permit: Callable[[Callable[[str], float]], None],
        clock: Callable[[], float] = time.monotonic,
        probes: WorkerProbes = NO_PROBES,
    ) -> None:
        self._settings, self._lease, self._migration = settings, lease, migration
        self._on_permit, self._clock = on_permit, clock
        config = LeaderElectionConfig(
            settings.leader_elect_lease_duration,
            settings.leader_elect_renew_deadline,
            settings.leader_elect_retry_period,
            # While it is offered, another component would take the second Lease.
            0.0 if migration else settings.leader_elect_offer_after,
        )
        self._main = LeaderElector(lease, config, self._on_main, clock, probes)
        self._second: LeaderElector | None = None
        if migration:
            second = replace(lease, name=migration.lease_name)
            self._second = LeaderElector(second, config, self._on_second, clock)
        self._main_until = self._second_until = 0.0
        self._has_main, self._has_second = asyncio.Event(), False
        self._contender: LeaderElector | None = None  # `_second`, once the main Lease is held

    @property
    def identity(self) -> str:
        return self._main.identity

    @property
    def last_decision(self) -> str:
        """What the elections decided last, as a sentence."""
        if self._contender:
            return f"{self._main.last_decision}; migration: {self._contender.last_decision}"
        return self._main.last_decision

    @property
    def refusal(self) -> str:
        """How the API server refuses us the Leases now; empty while it does not."""
        return self._main.refusal or (self._contender.refusal if self._contender else "")

    def electors(self) -> Iterator[LeaderElector]:
        """The electors that take part in an election."""
        if self._settings.leader_elect:
            yield from filter(None, (self._main, self._second))

    @property
    def checked_at(self) -> float:
        """When the election that is furthest behind last ended an attempt."""
        if self._contender:
            return min(self._main.checked_at, self._contender.checked_at)
        return self._main.checked_at

    def until(self, controller: str) -> float:
        """Until when workers of this controller may act (monotonic); 0 when they may not."""
        locks = self._locks(controller)
        if "migration" in locks and ("main" not in locks or self._has_second):
            return min(self._main_until, self._second_until)
        return self._main_until

    def settings_for(self, controller: str) -> Settings:
        """The settings of a worker: without the controllers of a migration Lease not yet held."""
        if (
            not self._migration
            or self._has_second
            or self._locks(controller) != {"main", "migration"}
        ):
            return self._settings
        later = (
            name
            for name in controller_names(controller)
            if self._migration.lease_role(name) == "migration"
        )
        return disable_controllers(self._settings, later)

    def status(self, now: float) -> LeaderStatus:
        """The part `leader` of `status`."""
        status: LeaderStatus = {
            "identity": self.identity,
            "is_leader": self._main_until > now,
            "seconds_left": round(max(self._main_until - now, 0.0), 1),
            "decision": self.last_decision if self._settings.leader_elect else "not used",
            "history": [*self._lease.holders],
        }
        if self._migration:
            status["migration"] = {
                "lease": self._migration.lease_name,
                "is_leader": min(self._main_until, self._second_until) > now,
            }
        return status

    def object_ref(self) -> ObjectRef:
        """The main Lease as the object of an Event."""
        return self._lease.object_ref()

    def elections(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The elections to run, by name; when one of them ends, a Lease was lost."""
        if not self._settings.leader_elect:
            yield "leadership", self._always_permit()
            return
        yield "leadership", self._main.run()
        if self._second:
            yield "leader migration", self._contend(self._second)

    async def release(self) -> None:
        """Release what is held; the main Lease last, because with it others take over."""
        if not self._settings.leader_elect:
            return
        if self._second:
            await self._second.release()
        await self._main.release()

    async def _contend(self, second: LeaderElector) -> None:
        await self._has_main.wait()
        second.checked_at = self._clock()
        self._contender = second
        await second.run()

    async def _always_permit(self) -> None:
        """Without leader election we may always act; the permission still needs renewing."""
        while True:
            self._on_main(self._clock() + self._settings.leader_elect_renew_deadline)
            await asyncio.sleep(self._settings.leader_elect_retry_period)

    def _on_main(self, until: float) -> None:
        self._main_until = until
        if until:
            self._has_main.set()
        self._on_permit(self.until)

    def _on_second(self, until: float) -> None:
        self._second_until = until
        self._has_second = self._has_second or until > 0
        self._on_permit(self.until)

    def _locks(self, controller: str) -> set[LeaseRole | None]:
        """The Leases under which the enabled controllers of this worker run."""
        wanted = [
            name
            for name in controller_names(controller)
            if is_enabled(name, self._settings.controllers)
        ]
        return {self._migration.lease_role(name) if self._migration else "main" for name in wanted}
