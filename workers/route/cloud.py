"""The provider's routes as the duty calls them: by permission, by priority, typed failures."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ccm.bus.port import Permission
from ccm.cloud.gate import spending
from ccm.cloud.interface import Routes
from ccm.cloud.invoke import invoke
from ccm.decide.budget import Priority
from ccm.errors import CloudError, NoPermit, Refused, RetryAfter, Throttled
from ccm.model.cloud import Route
from ccm.model.node import Node

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE = 1.0  # seconds after which a throttled call asks for its next grant


class CloudRoutes:
    """Raises `CloudError`, whatever the provider does; a throttled call is a `RetryAfter`."""

    def __init__(self, part: Routes, permission: Permission) -> None:
        self._part, self._permission = part, permission

    async def list(self, nodes: Sequence[Node], is_urgent: bool) -> Sequence[Route]:
        """All routes of this cluster; urgent when a Node waits for it. It is never given up."""
        priority = Priority.ROUTE if is_urgent else Priority.REFRESH
        try:
            return await self._call(priority, self._part.list, nodes)
        except Refused as error:
            raise CloudError(str(error)) from error

    async def create(self, node: Node, cidr: str) -> None:
        self._permission.check()
        await self._call(Priority.ROUTE, self._part.create, node, cidr)

    async def delete(self, route: Route) -> None:
        self._permission.check()
        await self._call(Priority.ROUTE, self._part.delete, route)

    async def _call(
        self, priority: Priority, method: Callable[..., T | Awaitable[T]], *args: Any
    ) -> T:
        try:
            with spending(priority):
                return await invoke(method, *args)
        except Throttled as error:
            raise RetryAfter(str(error), error.seconds or PAUSE) from error
        except (CloudError, NoPermit):
            raise
        except Exception as error:  # around one callback: a provider's bug is one failed call
            log.exception("provider failed", extra={"call": method.__name__})
            raise CloudError(f"the provider failed: {error!r}") from error
