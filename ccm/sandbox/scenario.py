"""What the sandbox does by itself once settled: a machine stops and starts, another ends."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from ccm.errors import CloudError
from ccm.model.objects import Node
from ccm.sandbox.cluster import Sandbox

STEP_DELAY = 3.0  # seconds between two steps, in which a person can read the table
REACTION_TIMEOUT = 30.0  # seconds in which a worker has to react


@dataclass(frozen=True, slots=True)
class Reaction:
    """What a worker is expected to do, and how that shows."""

    worker: str
    what: str
    is_there: Callable[[], bool]


@dataclass
class Scenario:
    """Disturbs the cloud and notes, a line each, what happens and what the workers do about it."""

    sandbox: Sandbox
    events: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """All of it once the sandbox is settled, unless someone else breaks in."""
        await self.sandbox.settled.wait()
        names = list(self.sandbox.observer.nodes)
        if len(names) < 2:
            return
        try:
            await self._stop_and_start(names[0])
            await self._terminate(names[1])
            self._record("sandbox", "that was all; now it is your turn")
        except (CloudError, TimeoutError) as problem:
            self._record(
                "sandbox", f"the scenario ends here: {str(problem) or 'no controller reacted'}"
            )

    async def _stop_and_start(self, name: str) -> None:
        cloud = self.sandbox.cloud
        await self._act(
            f"stops machine {name}, so its kubelet falls silent", partial(cloud.stop, name)
        )
        await self._watch(
            Reaction("node", f"put the shutdown taint on {name}", lambda: self._is_shut_down(name))
        )
        self._record(
            "service and route worker", f"keep {name}: a machine that is off may come back"
        )
        await self._act(f"starts machine {name} again", partial(cloud.start, name))
        await self._watch(
            Reaction("node", "took the shutdown taint away", lambda: not self._is_shut_down(name))
        )

    async def _terminate(self, name: str) -> None:
        terminate = partial(self.sandbox.cloud.terminate, name)
        await self._act(f"terminates machine {name}: it is gone for good", terminate)
        await self._watch(
            Reaction(
                "service",
                f"took {name} from the load balancer",
                lambda: name not in self.sandbox.workload.service_backends,
            ),
            Reaction("node", f"deleted Node {name}", lambda: self._node(name) is None),
            Reaction(
                "route",
                f"removed the route to {name}",
                lambda: name not in self.sandbox.workload.routed,
            ),
        )

    async def _act(self, what: str, act: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(STEP_DELAY)
        self._record("sandbox", what)
        await act()

    async def _watch(self, *expected: Reaction) -> None:
        """Note each reaction when it is there, in whatever order they come."""
        began, missing = time.monotonic(), list(expected)
        async with asyncio.timeout(REACTION_TIMEOUT):
            while missing:
                await asyncio.sleep(0.05)
                for reaction in [item for item in missing if item.is_there()]:
                    missing.remove(reaction)
                    seconds = time.monotonic() - began
                    who = f"{reaction.worker} worker after {seconds:.1f} s"
                    self._record(who, reaction.what)

    def _record(self, who: str, what: str) -> None:
        self.events.append(f"{who}: {what}")

    def _node(self, name: str) -> Node | None:
        observed = self.sandbox.observer.nodes.get(name)
        return observed.node if observed else None

    def _is_shut_down(self, name: str) -> bool:
        node = self._node(name)
        return node is not None and node.is_shut_down
