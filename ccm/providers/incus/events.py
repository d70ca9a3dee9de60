"""The stream of events: a hint that something about instances changed, and nothing more.

Incus resends nothing and cuts slow readers off, so what is true comes from lists alone.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import orjson
from aiohttp import WSMsgType

from ccm.background import start_task
from ccm.errors import CloudError, NotLeading
from ccm.model.objects import mapping, text
from ccm.providers.incus.api import IncusApi

log = logging.getLogger(__name__)

FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0  # seconds until a stream that broke is opened again
ACTIONS = frozenset(
    f"instance-{what}"
    for what in (
        "created", "deleted", "paused", "renamed", "restarted", "restored", "resumed", "shutdown",
        "started", "stopped", "updated",
    )
)  # fmt: skip


class EventListener:
    """Listens to each project, and says when there may be news; what fails is tried again."""

    def __init__(self, apis: Sequence[IncusApi], on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._tasks = set[asyncio.Task[None]]()
        for api in apis:
            for project in api.projects:
                task = start_task(self._listen(api, project), self._tasks.discard)
                self._tasks.add(task)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, api: IncusApi, project: str) -> None:
        """Stream after stream; before the start of each, changes may have been missed."""
        delay, is_reported = FIRST_RETRY, False
        while True:
            try:
                async with api.listen(project) as stream:
                    if is_reported:
                        log.info("events again", extra={"project": project})
                    delay, is_reported = FIRST_RETRY, False
                    self._on_change()
                    async for message in stream:
                        await asyncio.sleep(0)  # without end, they would keep all others waiting
                        if message.type is WSMsgType.PING:
                            await stream.pong(message.data)
                        elif message.type is WSMsgType.TEXT and is_about_instances(message.data):
                            self._on_change()
            except NotLeading:
                delay = FIRST_RETRY  # another replica may stop any moment
            except (CloudError, OSError, ValueError) as error:
                if not is_reported:
                    log.warning("no events", extra={"project": project, "why": str(error)})
                is_reported = True
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_RETRY)


def is_about_instances(data: str) -> bool:
    """Whether an event says that an instance is not what it was."""
    try:
        event = mapping(orjson.loads(data))
    except orjson.JSONDecodeError:
        return False
    return text(mapping(event.get("metadata")).get("action")) in ACTIONS
