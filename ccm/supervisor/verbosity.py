"""How much is logged, by the supervisor and its workers; it may change while they run."""

import logging
from collections.abc import Callable

from ccm.bus.frames import LogLevel, Message
from ccm.errors import ConfigurationFaults
from ccm.log import set_verbosity
from ccm.settings import Settings

log = logging.getLogger(__name__)


class Verbosity:
    """`level` is for workers that start from now on; `broadcast` reaches those that run."""

    def __init__(self, settings: Settings, broadcast: Callable[[Message], None]) -> None:
        self.level = settings.v
        self.reread: Callable[[], Settings] = lambda: settings  # the flags as they are by now
        self._settings, self._broadcast = settings, broadcast

    def set(self, level: int) -> None:
        """Log this much from now on, everywhere."""
        self.level = level
        set_verbosity(level)
        self._broadcast(LogLevel(level))

    def reload(self) -> str:
        """Do as the file of `--config` says by now, if there is one; what came of it."""
        if not self._settings.config:
            return "flags need a restart"
        try:
            self.set(self.reread().v)
        except ConfigurationFaults as faults:
            why = "; ".join(str(fault) for fault in faults.faults)
            log.error("flags are wrong by now and not read again", extra={"why": why})
            return f"flags are wrong by now: {why}"
        return f"the verbosity is {self.level}, other flags need a restart"
