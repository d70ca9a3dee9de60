"""Taking from a Service what may lead clients of others to it until its load balancer is right."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from ccm.cloud.gate import call
from ccm.cloud.interface import LoadBalancers, SharesBackends
from ccm.decide.budget import Priority
from ccm.errors import CloudError, ImplementedElsewhere, NotShown, Refused, RetryAfter
from ccm.model.cloud import Balancer
from ccm.model.service import Service, still_held
from workers.service.plan import SetStatus
from workers.service.state import StateCell, ingress_of, shown

STALE_LIST = 20.0  # seconds after a write in which a list of the cloud may be older than it
STALE_LIST_RETRY = 2.0  # seconds until a load balancer that such a list lacks is deleted again


class Withdrawal:
    """Withdraws backends and addresses, of which the state of a Service shows what may be wrong."""

    def __init__(
        self, balancers: LoadBalancers, write: Callable[[StateCell, SetStatus], Awaitable[None]]
    ) -> None:
        self._balancers, self._write = balancers, write

    async def after_failure(
        self, cell: StateCell, service: Service, error: CloudError, *, has_written: bool
    ) -> None:
        """What follows a creation or change that failed; of one that waits, without any write, what
        leads to another Service goes, as it may wait for ever.
        """
        if not isinstance(error, RetryAfter):
            cell.state = replace(cell.state, has_failed=True)
            await self.withdraw(cell, service)
            return
        if not has_written:
            await self.withdraw(cell, service, has_status=False)
        is_unread = cell.state.is_unread and not (has_written or isinstance(error, NotShown))
        if service.ingress and (is_unread or not cell.state.may_keep_addresses(service)):
            with suppress(CloudError):
                await self.verify(cell, service, may_ask=True)
            is_unsettled = cell.state.is_unsettled or has_written
            cell.state = replace(cell.state, is_unsettled=is_unsettled)

    async def withdraw(self, cell: StateCell, service: Service, has_status: bool = True) -> None:
        """Take the backends from what cannot be changed or deleted, and leads to another Service;
        from a status that is ours, the addresses that it gave up.

        The next change that succeeds gives them back.
        """
        priority, balancers, owner = Priority.LB_ENSURE, self._balancers, service.namespace
        if cell.state.has_lost_node_ports:
            with suppress(CloudError):
                if isinstance(balancers, SharesBackends):
                    await call(priority, balancers.withdraw, service, owner=owner)
                else:
                    await call(priority, balancers.update_nodes, service, (), owner=owner)
        is_right = not cell.state.is_unsettled and cell.state.may_keep_addresses(service)
        if has_status and service.ingress and not is_right:
            with suppress(CloudError):
                await self.verify(cell, service)

    async def verify(self, cell: StateCell, service: Service, *, may_ask: bool = False) -> None:
        """Take addresses from the status that the load balancer has no more; one answer may lack
        them. Whatever has them next would lose clients to the Service.

        Where it `may_ask` for more of what it shares, that stays unless it is another's.
        """
        if not (may_ask or cell.state.may_keep_addresses(service)):
            await self._write(cell, SetStatus(service, []))
            return
        for _ in range(2):
            found = await self._get(service)
            seen = shown(cell.state, service, found)
            may_keep = may_ask or seen.may_keep_addresses(service)
            has_ports = found and may_keep and not found.is_contested
            left = still_held(service, ingress_of(found) if found and has_ports else [])
            if left == service.ingress:
                break
        else:
            if (applied := cell.state.last_applied) and applied.ingress is not None:
                cell.state = replace(cell.state, last_applied=replace(applied, ingress=left))
            await self._write(cell, SetStatus(service, left))
        state = replace(cell.state, admitted=seen.admitted)
        cell.state = replace(state, is_unsettled=False, read_at=time.monotonic())

    async def verify_handed_over(self, cell: StateCell, service: Service) -> None:
        """The status is another controller's, but not while it is what we wrote there last."""
        applied = cell.state.last_applied
        is_as_written = applied is not None and applied.stored_ingress == service.ingress
        if is_as_written and service.ingress and cell.state.is_unsettled:
            with suppress(Refused, ImplementedElsewhere):
                await self.verify(cell, service)

    def verify_missing(self, cell: StateCell, service: Service) -> None:
        """Raise while a deletion that wrote nothing may have gone by a list from before.

        One list may lack what is published: it is looked for once more.
        """
        written_at, is_missed = cell.state.written_at, cell.state.is_missed
        if written_at is not None and (age := time.monotonic() - written_at) < STALE_LIST:
            why = f"the cloud does not show the load balancer that was written {age:.0f} s ago"
            raise RetryAfter(why, STALE_LIST_RETRY)
        cell.state = replace(cell.state, is_missed=True)  # wanted again, it is made at once
        if service.ingress and not is_missed:
            why = "the cloud does not show the load balancer that is published"
            raise RetryAfter(why, STALE_LIST_RETRY)

    async def _get(self, service: Service) -> Balancer | None:
        get, owner = self._balancers.get, service.namespace
        return await call(Priority.LB_ENSURE, get, service, owner=owner)
