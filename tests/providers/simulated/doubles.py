"""Stand-ins for what surrounds a provider: a gate that counts and calls, and Nodes."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ccm.cloud.interface import ProviderContext
from ccm.errors import CloudError
from ccm.model.objects import Node

T = TypeVar("T")


class CountingGate:
    """Grants everything at once; keeps what was called and what was raised in it."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.errors: list[CloudError] = []

    async def call(self, operation: str, budget: str, function: Callable[[], Awaitable[T]]) -> T:
        self.calls[operation, budget] += 1
        try:
            return await function()
        except CloudError as error:
            self.errors.append(error)
            raise

    def call_blocking(self, operation: str, budget: str, function: Callable[[], T]) -> T:
        self.calls[operation, budget] += 1
        return function()


def node(name: str, provider_id: str = "") -> Node:
    return Node({"metadata": {"name": name}, "spec": {"providerID": provider_id}})


def nodes(count: int) -> list[Node]:
    """`node-0` …, as the machines of `CloudState.add_machines`."""
    return [node(f"node-{number}") for number in range(count)]


def context(gate: CountingGate, config: str) -> ProviderContext:
    return ProviderContext(
        gate=gate,
        config=config.encode(),
        config_path="cloud.conf",
        cluster_name="test",
        caller="test",
    )
