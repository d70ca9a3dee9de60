"""What the sandbox does by itself once settled: a machine stops and starts, another ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ccm.errors import CloudError
from ccm.sandbox.cluster import Sandbox
from ccm.sandbox.kubelets import in_order
from ccm.sandbox.story import Story

STEP_DELAY = 3.0  # seconds between two steps, in which a person can read the table
REACTION_TIMEOUT = 30.0  # seconds in which workers have to react
DISTURBED = 2  # machines, those of the lowest numbers


@dataclass(frozen=True, slots=True)
class Scenario:
    """Disturbs the cloud, a step once the workers have reacted to the one before."""

    sandbox: Sandbox
    story: Story

    async def run(self) -> None:
        """All of it once the sandbox is settled, unless someone else breaks in."""
        await self.sandbox.settled.wait()
        machines = in_order(self.sandbox.observer.nodes)[:DISTURBED]
        if len(machines) < DISTURBED:
            return
        (off, gone), cloud = machines, self.sandbox.cloud
        self.story.say(f"stops and starts the machine {off}, then ends {gone}; watch the workers")
        try:
            await self._act(lambda: cloud.stop(off), lambda: self._is_shut_down(off))
            await self._act(lambda: cloud.start(off), lambda: not self._is_shut_down(off))
            await self._act(lambda: cloud.terminate(gone), lambda: self._is_forgotten(gone))
            await asyncio.sleep(STEP_DELAY)
            self.story.say("that was all; now it is your turn")
        except (CloudError, TimeoutError) as problem:
            self.story.say(f"the scenario ends here: {str(problem) or 'no controller reacted'}")

    async def _act(
        self, act: Callable[[], Awaitable[object]], has_effect: Callable[[], bool]
    ) -> None:
        await asyncio.sleep(STEP_DELAY)
        await act()
        async with asyncio.timeout(REACTION_TIMEOUT):
            while not has_effect():  # noqa: ASYNC110 - states of several watches
                await asyncio.sleep(0.05)

    def _is_shut_down(self, name: str) -> bool:
        observed = self.sandbox.observer.nodes.get(name)
        return observed is not None and observed.node.is_shut_down

    def _is_forgotten(self, name: str) -> bool:
        seen = self.sandbox.workload
        kept = (*self.sandbox.observer.nodes, *seen.service_backends, *seen.routed)
        return name not in kept
