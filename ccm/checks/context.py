"""A check, and the context it runs in: the flags, and the results of probes that checks share."""

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from ccm.checks.finding import Finding, NotChecked
from ccm.controllers import ROUTE, is_enabled
from ccm.settings import RawValue, Settings

T = TypeVar("T")


class CheckContext:
    """What one run of checks is about; `resources` are released when it is closed."""

    def __init__(self, settings: Settings, raw_values: Mapping[str, RawValue]) -> None:
        self.settings, self.raw_values = settings, raw_values
        self.resources = AsyncExitStack()
        self.cloud_calls: Counter[str] = Counter()  # by class of the budget
        self.probes: dict[Callable[..., Any], asyncio.Task[Any]] = {}

    async def close(self) -> None:
        """Cancel the probes that still run, then release what probes acquired."""
        for probe in self.probes.values():
            probe.cancel()
        await asyncio.gather(*self.probes.values(), return_exceptions=True)
        await self.resources.aclose()

    def runs(self, *controllers: str) -> bool:
        """Whether `--controllers` enables one of these."""
        return any(is_enabled(each, self.settings.controllers) for each in controllers)

    @property
    def configures_routes(self) -> bool:
        """Whether the route controller would have something to do."""
        settings = self.settings
        is_wanted = settings.configure_cloud_routes and bool(settings.cluster_cidr)
        return is_wanted and self.runs(ROUTE)


@dataclass(frozen=True, slots=True)
class Check:
    """`run` probes, at most `timeout` seconds long, and has a pure function evaluate the results.

    It may raise whatever it likes: other checks go on.
    """

    name: str
    run: Callable[[CheckContext], Awaitable[Iterable[Finding]]]
    timeout: float = 10.0


def once(
    probe: Callable[[CheckContext], Coroutine[Any, Any, T]],
) -> Callable[[CheckContext], Awaitable[T]]:
    """Run a probe once and share its result; a check that times out cancels it for no other."""

    @functools.wraps(probe)
    async def shared(context: CheckContext) -> T:
        if probe not in context.probes:
            context.probes[probe] = asyncio.create_task(probe(context), name=probe.__name__)
        result: T = await asyncio.shield(context.probes[probe])
        return result

    return shared


async def or_none(probe: Awaitable[T]) -> T | None:
    """The result of a probe; None when it raises `NotChecked`."""
    try:
        return await probe
    except NotChecked:
        return None
