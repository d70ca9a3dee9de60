"""The tagging controller, upstream's: instances have the tags of `--tags` while a Node has them.

Its keys are instances. It reads the tags themselves, for a batch of instances at a time, and writes
what differs; upstream goes by a label that it leaves on the Node. Imports no SDK: see `faults`.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from ccm.bus.frames import Message
from ccm.decide.budget import MOST_OBJECTS, READ_PAUSE, READS, Allowances, Priority
from ccm.errors import CloudError, ConfigurationFault, ConfigurationFaults
from ccm.kube.client import RateLimit
from ccm.kube.events import ObjectRef
from ccm.model.cloud import Answer, Gone, Unknown
from ccm.model.objects import NODE_IDENTITY_PATHS, Json, Node, Projection
from ccm.model.rbac import event_rule
from ccm.providers.aws import ids
from ccm.providers.aws.tags import (
    MAX_KEY,
    MAX_TAGS,
    MAX_VALUE,
    RESERVED_PREFIX,
    TagRequest,
    says_ownership,
)
from ccm.settings import Settings
from workers.batch_reader import BatchReader
from workers.controller import ControllerContext, Result
from workers.queue import RETRY

if TYPE_CHECKING:
    from ccm.providers.aws.provider import AwsCloud

COMPONENT = "tagging-controller"
PROJECTIONS = (Projection("Node", NODE_IDENTITY_PATHS),)
BACKOFF = RETRY
POLICY_RULES = (event_rule(),)

INSTANCE = "instance"
"""The only one of `--resources`, as upstream."""
RESYNC_PERIOD = 1800.0  # seconds after which all tags are compared again
GONE_RETRY = 60.0  # seconds until a Node's instance that EC2 does not have is looked for again


def faults(settings: Settings) -> Iterator[ConfigurationFault]:
    """What this controller cannot run with: nothing to do, or tags that cannot be written."""
    if not settings.tags:
        yield ConfigurationFault("--tags", "must not be empty", "give key=value,…")
    if not settings.resources:
        yield ConfigurationFault("--resources", "must not be empty", f"give {INSTANCE}")
    for name in sorted({*settings.resources} - {INSTANCE}):
        yield ConfigurationFault("--resources", f"{name!r} cannot be tagged", f"give {INSTANCE}")
    if len(settings.tags) > MAX_TAGS:
        yield ConfigurationFault("--tags", f"are more than {MAX_TAGS}", "leave some out")
    for key, value in settings.tags.items():
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE:
            problem = f"{key!r} has a key or value of a length that AWS does not take"
            remedy = f"keys have 1 to {MAX_KEY} characters, values up to {MAX_VALUE}"
            yield ConfigurationFault("--tags", problem, remedy)
        if key.lower().startswith(RESERVED_PREFIX) or says_ownership(key):
            problem = f"{key!r} is reserved by AWS, or marks the owner of an object"
            yield ConfigurationFault("--tags", problem, "take another key")


def new_controller(context: ControllerContext) -> "TaggingController":
    """The tagging controller of this process."""
    if found := list(faults(context.settings)):
        raise ConfigurationFaults(found)
    return TaggingController(context)


def concurrency(settings: Settings) -> int:
    """How many instances are reconciled at the same time."""
    return settings.tagging_controller_concurrent_node_syncs or settings.kube_api_in_flight


class TaggingController:
    """Tags instances that get a Node, and untags those that lose theirs."""

    def __init__(self, context: ControllerContext) -> None:
        settings, cloud = context.settings, cast("AwsCloud", context.provider)
        self._context, self._tags = context, settings.tags
        self._reader: BatchReader[TagRequest, Answer] = BatchReader(
            cloud.instance_tags.describe, cloud.instance_tags.batch_size, Priority.REFRESH, context
        )
        rate, burst = (
            settings.tagging_controller_rate_limit,
            settings.tagging_controller_burst_limit,
        )
        self._limit = RateLimit(rate, burst) if rate and burst else None
        self._instances: dict[str, str] = {}  # by Node
        self._nodes: dict[str, set[str]] = defaultdict(set)  # by instance
        self._moves = Allowances[str](READS, READ_PAUSE, MOST_OBJECTS)  # of Nodes

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        """The instance that the Node has now, and the one that it had.

        One that registers again and again with another one has none until the next comparison.
        """
        node = self._context.store.view(Node, key)
        before = self._instances.pop(key, "")
        now = ids.instance_id_of(node.provider_id) if node else ""
        if now not in ("", before) and self._moves.take(key, time.monotonic()):
            now = ""
        if before and now != before:
            self._nodes[before].discard(key)
        if now:
            self._instances[key] = now
            self._nodes[now].add(key)
        return filter(None, (before, now)) if now != before else ()

    async def run(self) -> None:
        await asyncio.gather(self._reader.run(), self._resync())

    def on_message(self, message: Message) -> None:
        return

    def object_ref(self, key: str) -> ObjectRef | None:
        names = self._nodes.get(key)
        node = self._context.store.view(Node, min(names)) if names else None
        return ObjectRef.of(node) if node else None

    def status(self) -> Json:
        return {"objects": len(self._instances)}

    def details(self, key: str) -> Json:
        return {"nodes": ", ".join(sorted(self._nodes.get(key, ()))) or "none"}

    async def reconcile(self, key: str) -> Result:
        await self._wait_for_turn(key)
        is_held = bool(self._nodes.get(key))
        answer = await self._reader.read(TagRequest(key, self._tags, is_held))
        self._reader.forget(key)
        if isinstance(answer, Unknown):
            raise CloudError(answer.why)
        if isinstance(answer, Gone) and is_held:
            return Result(answer.evidence, is_done=False, requeue_after=GONE_RETRY)
        if not self._nodes.get(key):
            self._nodes.pop(key, None)
        return Result("tagged" if is_held else "it has no Node and none of the tags")

    async def _wait_for_turn(self, key: str) -> None:
        if self._limit:
            with self._context.queue.parking(key):
                async with self._context.executor.waiting(key):
                    await self._limit.wait()

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_PERIOD)
            names = self._context.store.keys("Node")
            former = {key for name in names for key in self.map_to_keys("Node", name)}
            for instance_id in {*self._instances.values(), *former}:
                self._context.queue.add(instance_id)
