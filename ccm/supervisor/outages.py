"""What workers report of the cloud as a whole: one warning when it fails, one line at the end."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from ccm.model.objects import mapping, text
from ccm.supervisor.child import Child

log = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0  # seconds between two looks at what the workers report


class CloudOutages:
    """Notices that every read of a worker has failed for a while; `warn` records an Event."""

    def __init__(self, children: Iterable[Child], warn: Callable[[str, str], None]) -> None:
        self._children, self._warn = children, warn
        self._why = ""

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_INTERVAL)

    def check(self) -> None:
        """Report what has begun, or is over."""
        statuses = {child.name: child.current.status for child in self._children if child.current}
        whys = {
            name: why
            for name, status in statuses.items()
            if (why := text(mapping(status.get("cloud_outage")).get("why")))
        }
        if whys and not self._why:
            self._why, names = next(iter(whys.values())), ", ".join(sorted(whys))
            log.warning("cloud unavailable", extra={"workers": names, "why": self._why})
            message = f"Every read of the cloud has failed for a minute ({names}): {self._why}"
            self._warn("CloudUnavailable", message)
        elif self._why and not whys and all("cloud_outage" in it for it in statuses.values()):
            log.info("cloud available again", extra={"was": self._why})
            self._why = ""
