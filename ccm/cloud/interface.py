"""The contract between the controllers and a cloud; a provider author reads this file first.

A provider is an ordinary class. It leaves out the parts its cloud does not have, and it makes every
call to its cloud through the gate it is given, so that all workers together stay within one budget.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ccm.model.cloud import Answer
from ccm.model.node import Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Quota:
    """What the cloud's documentation allows for one class of calls, for the whole account."""

    per_second: float
    burst: int


class Gate(Protocol):
    """The only way to the cloud: grant, call with a timeout, metrics, error class.

    `operation` names the call in metrics and logs ("DescribeInstances"); `budget` is one of the
    classes in `CloudProvider.quotas`. A call that raises `Throttled` slows all workers at once.
    Raises what the call raises; a call that outlives its deadline raises `CloudError`.
    """

    async def call(self, operation: str, budget: str, function: Callable[[], Awaitable[T]]) -> T:
        """Run one asynchronous cloud call once a grant is there."""
        ...

    def call_blocking(self, operation: str, budget: str, function: Callable[[], T]) -> T:
        """The same for a provider method that runs in the thread pool."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What a provider is given when it starts."""

    gate: Gate
    config: bytes  # the content of --cloud-config; empty when the flag is not set
    config_path: str  # for error messages only
    cluster_name: str
    caller: str  # the worker that asks, such as "node-0"; for the cloud's own request log


class Instances(Protocol):
    """What the cloud knows about machines (upstream: InstancesV2, but batched and three-valued)."""

    batch_size: int
    """How many Nodes one `describe` turns into one cloud call; the caller fills batches to this."""

    def describe(
        self, nodes: Sequence[Node]
    ) -> Mapping[str, Answer] | Awaitable[Mapping[str, Answer]]:
        """Answer for each Node by name; existence, metadata and power state in one read.

        A Node is looked up by `provider_id`, or by name while it has none. `Gone` is the cloud's
        positive word; whatever is not positively known is `Unknown`, and a Node left out of the
        result counts as `Unknown`. Raises `CloudError` when nothing at all could be read.
        """
        ...


class CloudProvider(Protocol):
    """One cloud. `scheme` is the part of its provider IDs before `://`, usually its name.

    `quotas` and the parts (`instances`, …) may depend on the configuration: they are read after
    `initialize`.
    """

    name: str
    scheme: str
    quotas: Mapping[str, Quota]
    has_cluster_id: bool
    instances: Instances | None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration and get ready; faults in it raise `ConfigurationFaults`.

        Called once in every worker, leader or not, so it makes no write to the cloud.
        """
        ...

    async def close(self) -> None:
        """Give back what `initialize` took."""
        ...
