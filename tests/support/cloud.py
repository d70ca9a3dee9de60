"""What fakes of a cloud are made of: grants for everything, and parts that answer in batches."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

from ccm.cloud.gate import WorkerGate, current_priority
from ccm.decide.budget import Priority
from ccm.model.cloud import Gone, Unknown

from .deadlines import timeout
from .nodes import PROVIDER_IDS, SCHEME

GRANTED = 123.0  # when the source says that every call was granted
PARTS = ("instances", "load_balancers", "routes", "volumes")


class Named(Protocol):
    """An object that a cloud is asked about."""

    @property
    def name(self) -> str: ...


class GrantSource:
    """Gives every call its grant, unless it is closed; keeps what was spent and reported."""

    def __init__(self) -> None:
        self.spent: list[tuple[str, Priority]] = []
        self.throttles: list[tuple[str, float | None, float]] = []
        self.left: list[tuple[str, int, float]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def take(self, budget: str, priority: Priority) -> float:
        await self.open.wait()
        self.spent.append((budget, priority))
        return GRANTED

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        self.throttles.append((budget, seconds, granted))

    def remaining(self, budget: str, calls: int, seconds: float) -> None:
        self.left.append((budget, calls, seconds))


def new_provider(**parts: object) -> Any:
    """A provider with these parts and nothing else."""
    return SimpleNamespace(name=SCHEME, provider_ids=PROVIDER_IDS, **dict.fromkeys(PARTS) | parts)


class Inventory:
    """A part of a cloud that answers for many objects in one read: what it says of each, by name.

    `reads` are those that it was asked for, `failures` what the next ones end with.
    """

    csi_drivers: frozenset[str] = frozenset()
    legacy_sources: frozenset[str] = frozenset()

    def __init__(self, batch_size: int = 100) -> None:
        self.batch_size = batch_size
        self.answers: dict[str, Any] = {}
        self.failures: list[Exception] = []
        self.reads: list[list[str]] = []
        self.gate = asyncio.Event()  # no read is answered before it is set
        self.gate.set()
        self.grants = GrantSource()
        self.check: Callable[[], None] = lambda: None
        self._calls = WorkerGate(self.grants, timeout=timeout(), check=lambda: self.check())

    def machine_of(self, provider_id: str) -> str:
        return provider_id

    async def describe(self, objects: Sequence[Named]) -> Mapping[str, Any]:
        names = [one.name for one in objects]
        answer = partial(self._answer, names)
        return await self._calls.call("Describe", "read", answer, is_write=False)

    async def _answer(self, names: list[str]) -> Mapping[str, Any]:
        self.reads.append(names)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return {name: self.answers[name] for name in names if name in self.answers}


class ProvingMachines(Inventory):
    """Machines that are looked up without a proof that one is gone, or described with one.

    A proof takes `seconds` for each Node, a look-up for all of them. `proven` has the names of each
    proof, in order, `priorities` what it was made with.
    """

    def __init__(self, batch_size: int = 100, seconds: float = 0.0) -> None:
        super().__init__(batch_size)
        self.proven: list[list[str]] = []
        self.priorities: list[Priority] = []
        self._seconds = seconds

    async def describe(self, objects: Sequence[Named]) -> Mapping[str, Any]:
        self.proven.append(sorted(one.name for one in objects))
        self.priorities.append(current_priority())
        await asyncio.sleep(self._seconds * len(objects))
        return await super().describe(objects)

    async def look_up(self, nodes: Sequence[Named]) -> Mapping[str, Any]:
        await asyncio.sleep(self._seconds)
        nowhere = Unknown("no machine was found", is_nowhere=True)
        found = await super().describe(nodes)
        return {name: nowhere if isinstance(it, Gone) else it for name, it in found.items()}


class MarkedMachines(Inventory):
    """Machines of which some are not the cluster's: why, by the names of Nodes, in `lacking`."""

    required_marks = frozenset({"tag:ours"})

    def __init__(self, lacking: Mapping[str, str]) -> None:
        super().__init__()
        self.lacking = lacking

    def require_marks(self, marks: Collection[str]) -> None:
        raise AssertionError("the worker does not set marks")

    async def foreign(self, nodes: Sequence[Named]) -> Mapping[str, str]:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return {node.name: self.lacking.get(node.name, "") for node in nodes}
