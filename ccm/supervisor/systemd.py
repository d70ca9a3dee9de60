"""What the supervisor tells systemd: ready, reloading, stopping, status, and that it progresses.

The protocol is sd_notify(3): a datagram of `NAME=value` lines to the socket in $NOTIFY_SOCKET.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

log = logging.getLogger(__name__)

STATUS_LIMIT = 1000  # characters; systemd drops a datagram of more than 4096 bytes
PAUSE = 0.5  # seconds between two looks at what to tell systemd
STOP_MARGIN = 15.0  # seconds to give the lease back and to end, after the workers have drained


class Notifier:
    """Tells the service manager of this process; without one, every method does nothing.

    It takes systemd's variables out of `environment`, so no child that is started later can speak
    for us. Nothing here blocks or raises: a service manager that does not listen is logged once.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = _address(environment.pop("NOTIFY_SOCKET", ""))
        self._watchdog_period = _watchdog_period(
            environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        )
        self._status = ""
        self._was_heard = True
        self.is_ready = False

    @property
    def watchdog_period(self) -> float | None:
        """Seconds between two feedings: half of what systemd allows; None: there is no watchdog."""
        return self._watchdog_period if self._address else None

    def ready(self, status: str) -> None:
        """The start, or the reload, is done."""
        self._status, self.is_ready = _one_line(status), True
        self._send("READY=1", f"STATUS={self._status}")

    def status(self, text: str) -> None:
        """Show `text` in `systemctl status`; call it as often as you like."""
        text = _one_line(text)
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def reloading(self) -> None:
        """A reload begins; `ready` has to follow."""
        self.is_ready = False
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, seconds: float) -> None:
        """An orderly stop begins, whose drain may take `seconds`: systemd is asked to wait."""
        patience = int((seconds + STOP_MARGIN) * 1_000_000)
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={patience}")

    def watchdog(self) -> None:
        """Feed the watchdog once."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.setblocking(False)
                connection.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError as error:
            if self._was_heard:
                log.warning("systemd does not listen", extra={"error": str(error)})
            self._was_heard = False
        else:
            self._was_heard = True


async def keep_informed(
    notifier: Notifier, is_settled: Callable[[], bool], sentence: Callable[[], str]
) -> None:
    """Show `sentence()` as the status for ever; a start or reload is done when `is_settled()`."""
    while True:
        if is_settled() and not notifier.is_ready:
            notifier.ready(sentence())
        else:
            notifier.status(sentence())
        await asyncio.sleep(PAUSE)


async def keep_fed(notifier: Notifier, is_progressing: Callable[[], str | None]) -> None:
    """Feed the watchdog for ever, but only while `is_progressing()` has nothing to complain of.

    It returns None, or says what is stuck; then systemd gets no food and in the end kills us.
    """
    period = notifier.watchdog_period
    if period is None:
        await asyncio.Event().wait()  # for ever, as with a watchdog
        return
    was_stuck = False
    while True:
        stuck = is_progressing()
        if stuck is None:
            notifier.watchdog()
            if was_stuck:
                log.info("progress again, the watchdog is fed")
        elif not was_stuck:
            log.error("no progress, the watchdog is not fed", extra={"stuck": stuck})
        was_stuck = stuck is not None
        await asyncio.sleep(period)


def _address(text: str) -> str:
    """The socket's address as Python has it: an abstract one begins with a zero byte, not "@"."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else ""  # others are for virtual machines (vsock)


def _watchdog_period(usec: str, pid: str) -> float | None:
    is_ours = not pid or pid == str(os.getpid())
    return int(usec) / 2_000_000 if is_ours and usec.isdecimal() and int(usec) else None


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:STATUS_LIMIT]
