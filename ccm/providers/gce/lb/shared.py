"""What load balancers share: the health check of kube-proxy, its firewall, and instance groups."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ccm.cloud.shared_read import SharedLock
from ccm.model.objects import text
from ccm.model.service import Service
from ccm.providers.gce.ids import last_part
from ccm.providers.gce.lb.backends import BackendServices
from ccm.providers.gce.lb.observed import CHECK, FIREWALL, HTTP_CHECK, POOL, SERVICE, Kind, Work
from ccm.providers.gce.lb.parts import Parts
from ccm.providers.gce.lb.request import is_internal


class SharedParts:
    """Deletes them with their last user, and none while a load balancer is being made with them."""

    def __init__(self, parts: Parts, services: BackendServices) -> None:
        self._parts, self._services = parts, services
        self._deleting = SharedLock()
        self._making: dict[Kind, set[str]] = {HTTP_CHECK: set(), CHECK: set()}
        """Load balancers that are being made with shared parts, by the kind of their check."""
        self._has_left_groups = False  # as another was being made, which may have been refused

    @asynccontextmanager
    async def kept_for(self, service: Service) -> AsyncIterator[None]:
        """While this lasts, no deletion takes what the Service shares; those before have ended.

        So what is read in it stays true. All internal load balancers have the groups.
        """
        name, kind = service.default_balancer_name, check_kind(is_internal(service))
        shares_check = service.health_check is None
        if shares_check or kind is CHECK:
            self._making[kind].add(name)
        try:
            if shares_check:
                async with self._deleting.held():
                    pass
            yield
        finally:
            self._making[kind].discard(name)

    async def delete(self, work: Work, kind: Kind, *, had_groups: bool = False) -> None:
        """The shared health check of this kind, its firewall and the groups, with the last user.

        A user tries although others are listed: of several that leave at the same time, the
        last one finds them unused.
        """
        names, observed = work.names, work.observed
        users = {
            text(part.get("name"))
            for part in observed.all(SERVICE if kind is CHECK else POOL)
            if names.shared_check in map(last_part, map(text, part.get("healthChecks", ())))
        }
        used = {names.balancer, last_part(text((work.rule or {}).get("backendService")))}
        firewall = observed.get(FIREWALL, names.check_firewall(False, kind is CHECK))
        is_there = bool(observed.get(kind, names.shared_check) or firewall)
        is_last = is_there and not users
        has_groups = had_groups or (kind is CHECK and (is_last or self._has_left_groups))
        if not (has_groups or is_last or (is_there and used & users)):
            return
        async with self._deleting.held():
            is_kept = bool(self._making[kind] - {names.balancer})
            if not is_kept:
                await self.delete_check(work, kind, is_local=False, has_groups=has_groups)
            if has_groups:
                self._has_left_groups = is_kept

    async def delete_check(
        self, work: Work, kind: Kind, *, is_local: bool, has_groups: bool = False
    ) -> None:
        """A health check, and with it the groups and its firewall, unless others use it.

        That a list lacks the check is no proof: whether others use it, the cloud says.
        """
        name = work.names.check(is_local)
        firewall = work.names.check_firewall(is_local, kind is CHECK)
        has_firewall = work.observed.get(FIREWALL, firewall)
        is_there = has_firewall or work.observed.get(kind, name)
        if is_there and not await self._parts.delete(work.place, kind, name):
            return
        if has_groups:
            await self._services.delete_groups(work.names)
        if has_firewall:  # until then it shows that groups may be there
            await self._parts.delete(work.place, FIREWALL, firewall)


def check_kind(is_internal: bool) -> Kind:
    return CHECK if is_internal else HTTP_CHECK
