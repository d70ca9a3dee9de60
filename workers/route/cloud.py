"""The provider's routes as the duty calls them: by permission, by priority, typed failures."""

from collections.abc import Sequence

from ccm.bus.sockets import Permission
from ccm.cloud.gate import call
from ccm.cloud.interface import Routes
from ccm.decide.budget import Priority
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Route
from ccm.model.node import Node


class CloudRoutes:
    """Raises `CloudError`, whatever the provider does; a throttled call is a `RetryAfter`."""

    def __init__(self, part: Routes, permission: Permission) -> None:
        self._part, self._permission = part, permission

    async def list(self, nodes: Sequence[Node], is_urgent: bool) -> Sequence[Route]:
        """All routes of this cluster; urgent when a Node waits for it. It is never given up."""
        priority = Priority.ROUTE if is_urgent else Priority.REFRESH
        try:
            return await call(priority, self._part.list, nodes)
        except Refused as error:
            raise CloudError(str(error)) from error

    async def create(self, node: Node, cidr: str) -> None:
        self._permission.check()
        await call(Priority.ROUTE, self._part.create, node, cidr)

    async def delete(self, route: Route) -> None:
        self._permission.check()
        await call(Priority.ROUTE, self._part.delete, route)
