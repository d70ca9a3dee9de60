"""What workers report of the cloud as a whole: a warning while it fails, one line at the end."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from ccm.model.status import CloudOutage
from ccm.supervisor.child import Child
from ccm.supervisor.problems import Cause, find_outage

log = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0  # seconds between two looks at what the workers report
MAX_CAUSE = 120  # characters of a label
LOG_INTERVAL = 60.0  # seconds between two records of an outage that lasts


class OutageCause:
    """The cause of an outage as a label: that of its first scrape for as long as it lasts.

    Errors differ by the ID of a request. As a label each would be another series, and an alert
    that waits for a minute of one would never fire.
    """

    def __init__(self) -> None:
        self._text = ""

    def label(self, outage: CloudOutage) -> str:
        """The label now; empty without an outage."""
        self._text = (self._text or outage.get("why", "")[:MAX_CAUSE]) if outage else ""
        return self._text


class CloudOutages:
    """Notices that every read of a worker has failed for a while; `warn` records an Event."""

    def __init__(self, children: Iterable[Child], warn: Callable[[str, str], None]) -> None:
        self._children, self._warn = children, warn
        self._why = ""
        self._logged = 0.0

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_INTERVAL)

    def check(self) -> None:
        """Report what has begun, or is over."""
        now = time.monotonic()
        workers = [child.describe(now) for child in self._children if child.current]
        outage = find_outage(workers)
        if outage:
            self._report(outage)
        elif self._why and all("cloud_outage" in it for it in workers):
            log.info("cloud available again", extra={"was": self._why})
            self._why = ""

    def _report(self, outage: Cause) -> None:
        """An Event when it begins, a record then and every minute."""
        sentence, now = outage.problem().sentence, time.monotonic()
        if not self._why:
            self._warn("CloudUnavailable", sentence)
        if not self._why or now - self._logged >= LOG_INTERVAL:
            self._logged = now
            log.warning("cloud unavailable", extra={"why": sentence})
        self._why = outage.why
