"""The provider's balancers as the duty calls them: by permission, by priority, typed failures."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ccm.bus.sockets import Permission
from ccm.cloud.gate import call
from ccm.cloud.interface import LoadBalancers
from ccm.decide.budget import Priority
from ccm.errors import ImplementedElsewhere
from ccm.model.cloud import Balancer
from ccm.model.service import Service
from workers.service.hosts import Hosts

T = TypeVar("T")


class Balancers:
    """Raises `CloudError`, whatever the provider does; a throttled call is a `RetryAfter`."""

    def __init__(self, part: LoadBalancers, permission: Permission) -> None:
        self._part, self._permission = part, permission

    async def exists(self, service: Service) -> bool:
        """Whether there is a balancer of ours for this Service."""
        return await self._call(Priority.LB_DELETE, self._part.get, service) is not None

    async def ensure(self, service: Service, hosts: Hosts, is_check: bool) -> Balancer | None:
        """The balancer; None when another controller looks after it."""
        priority = Priority.REFRESH if is_check else Priority.LB_ENSURE
        try:
            return await self._call(priority, self._part.ensure, service, hosts.nodes)
        except ImplementedElsewhere:
            return None

    async def update_hosts(self, service: Service, hosts: Hosts) -> bool:
        """Replace the hosts; False when another controller looks after the balancer."""
        try:
            await self._call(Priority.LB_ENSURE, self._part.update_hosts, service, hosts.nodes)
        except ImplementedElsewhere:
            return False
        return True

    async def delete(self, service: Service) -> None:
        try:
            await self._call(Priority.LB_DELETE, self._part.delete, service)
        except ImplementedElsewhere:
            return

    async def _call(
        self, priority: Priority, method: Callable[..., T | Awaitable[T]], *args: Any
    ) -> T:
        self._permission.check()
        return await call(priority, method, *args)
