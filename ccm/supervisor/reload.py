"""Reloads: at a command or SIGHUP, and again after one that the cloud did not answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ccm.background import start_task
from ccm.model.objects import Json
from ccm.supervisor.child import NotReplaced
from ccm.supervisor.commands import Verbosity
from ccm.supervisor.systemd import SystemdNotifier

log = logging.getLogger(__name__)

RELOAD_INTERVAL = 30.0  # seconds after which a reload that may succeed later is tried again


class Reloader:
    """Replaces all workers: their successors read cloud configuration and credentials again."""

    def __init__(
        self,
        replace_all: Callable[[], Awaitable[NotReplaced | None]],
        verbosity: Verbosity,
        notifier: SystemdNotifier,
    ) -> None:
        self._replace_all, self._verbosity, self._notifier = replace_all, verbosity, notifier
        self._reloads = set[asyncio.Task[Any]]()
        self._again: asyncio.TimerHandle | None = None
        self._is_stopped = False

    async def reload(self) -> Json:
        """Return what a command answers: `ok`, or why no worker is replaced.

        One of the successors proves the credentials; if they do not work, all workers go on as they
        are. It is tried again unless the cloud refuses them or the configuration is invalid. Of the
        flags, only the verbosity in the file of `--config` is read again without a restart.
        """
        self._cancel()
        self._notifier.reloading()
        log.info("reloading")
        flags = self._verbosity.reload()
        failed = await self._replace_all()
        if failed is None:
            return {"ok": f"workers read the cloud configuration again; {flags}"}
        extra: Json = {"why": failed.why}
        answer = f"the workers go on with what they have: {failed.why}"
        if failed.may_pass and not self._is_stopped:
            self._cancel()
            self._again = asyncio.get_running_loop().call_later(RELOAD_INTERVAL, self.begin)
            extra["again_in"] = RELOAD_INTERVAL
            answer += f"; the reload is tried again in {RELOAD_INTERVAL:g} s"
        log.error("not reloaded: the workers go on as they are", extra=extra)
        return {"error": f"{answer}; {flags}"}

    def begin(self) -> None:
        """Reload at SIGHUP, whose sender waits for no answer."""

        async def reload() -> None:
            await self.reload()

        self._reloads.add(start_task(reload(), self._reloads.discard))

    def stop(self) -> None:
        """Try nothing again."""
        self._is_stopped = True
        self._cancel()

    def _cancel(self) -> None:
        if self._again:
            self._again.cancel()
            self._again = None
