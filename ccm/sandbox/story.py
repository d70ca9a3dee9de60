"""What the sandbox does by itself once it is settled: a machine stops and starts, another ends."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ccm.errors import CloudError
from ccm.model.node import SHUTDOWN_TAINT, Node
from ccm.sandbox.cluster import Sandbox

PAUSE = 3.0  # seconds in which a person can read the table
PATIENCE = 30.0  # seconds for a reaction


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened, and the seconds that passed since its cause."""

    who: str
    what: str
    seconds: float = 0.0

    def __str__(self) -> str:
        after = f" after {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.who}{after}: {self.what}"


@dataclass(frozen=True, slots=True)
class Reaction:
    """What a worker is expected to do, and how that shows."""

    worker: str
    what: str
    is_there: Callable[[], bool]


@dataclass
class Story:
    """Disturbs the cloud and notes what each worker does about it."""

    sandbox: Sandbox
    lines: list[Line] = field(default_factory=list)

    async def run(self) -> None:
        """All of it once the sandbox is settled, unless somebody else breaks in."""
        await self.sandbox.settled.wait()
        names = list(self.sandbox.observer.sightings)
        if len(names) < 2:
            return
        try:
            await self._stop_and_start(names[0])
            await self._terminate(names[1])
            self._say("sandbox", "that was all; now it is your turn")
        except (CloudError, TimeoutError) as problem:
            self._say("sandbox", f"the story ends here: {str(problem) or 'nobody reacted'}")

    async def _stop_and_start(self, name: str) -> None:
        cloud = self.sandbox.cloud
        await self._act(f"stops machine {name}, so its kubelet falls silent", cloud.stop(name))
        await self._watch(
            Reaction("node", f"put the shutdown taint on {name}", lambda: self._is_marked(name))
        )
        self._say("service and route worker", f"keep {name}: a machine that is off may come back")
        await self._act(f"starts machine {name} again", cloud.start(name))
        await self._watch(
            Reaction("node", "took the shutdown taint away", lambda: not self._is_marked(name))
        )

    async def _terminate(self, name: str) -> None:
        terminate = self.sandbox.cloud.terminate(name)
        await self._act(f"terminates machine {name}: it is gone for good", terminate)
        await self._watch(
            Reaction("service", f"took {name} from the balancer", lambda: not self._is_host(name)),
            Reaction("node", f"deleted Node {name}", lambda: self._node(name) is None),
            Reaction("route", f"removed the route to {name}", lambda: not self._is_routed(name)),
        )

    async def _act(self, what: str, act: Awaitable[object]) -> None:
        await asyncio.sleep(PAUSE)
        self._say("sandbox", what)
        await act

    async def _watch(self, *expected: Reaction) -> None:
        """Note each reaction when it is there, in whatever order they come."""
        began, missing = time.monotonic(), list(expected)
        async with asyncio.timeout(PATIENCE):
            while missing:
                await asyncio.sleep(0.05)
                for reaction in [one for one in missing if one.is_there()]:
                    missing.remove(reaction)
                    seconds = time.monotonic() - began
                    self._say(f"{reaction.worker} worker", reaction.what, seconds)

    def _say(self, who: str, what: str, seconds: float = 0.0) -> None:
        self.lines.append(Line(who, what, seconds))

    def _node(self, name: str) -> Node | None:
        sighting = self.sandbox.observer.sightings.get(name)
        return sighting.node if sighting else None

    def _is_marked(self, name: str) -> bool:
        node = self._node(name)
        return node is not None and any(t.get("key") == SHUTDOWN_TAINT for t in node.taints)

    def _is_host(self, name: str) -> bool:
        return name in self.sandbox.sights.service_hosts

    def _is_routed(self, name: str) -> bool:
        return name in self.sandbox.sights.routed
