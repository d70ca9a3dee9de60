"""sd_notify(3): state, status and watchdog, as datagrams of `NAME=value` lines to systemd."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

from ccm.printable import printable

log = logging.getLogger(__name__)

STATUS_LIMIT = 1000  # characters; systemd drops a datagram of more than 4096 bytes
STATUS_INTERVAL = 0.5  # seconds between two updates of the status
RETRY_INTERVAL = 0.01  # seconds until a keep-alive that was not taken is sent again
STOP_MARGIN = 15.0  # seconds to release the lease and to exit, after the workers have drained


class SystemdNotifier:
    """Notifies systemd; without $NOTIFY_SOCKET every method does nothing.

    It takes systemd's variables out of `environment`, so that no child inherits them. Nothing here
    blocks or raises: an error is logged once. Any user of the host may keep systemd's socket full.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = _address(environment.pop("NOTIFY_SOCKET", ""))
        self._watchdog_period = _watchdog_period(
            environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        )
        self._status = ""
        self._is_reachable = True
        self.is_ready = False

    @property
    def watchdog_period(self) -> float | None:
        """Seconds between two keep-alives: half of what systemd allows; None without a watchdog."""
        return self._watchdog_period if self._address else None

    def ready(self, status: str) -> None:
        """The start or the reload has finished."""
        self._status = _fitting(status)
        self.is_ready = self._send("READY=1", f"STATUS={self._status}")

    def status(self, text: str) -> None:
        """Show `text` in `systemctl status`; an unchanged one is not sent again."""
        text = _fitting(text)
        if text != self._status and self._send(f"STATUS={text}"):
            self._status = text

    def reloading(self) -> None:
        """A reload begins; `ready` has to follow."""
        self.is_ready = False
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def waiting(self, status: str, seconds: float) -> None:
        """The start goes on; systemd is asked for `seconds` more."""
        self.status(status)
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def stopping(self, seconds: float) -> None:
        """A graceful stop begins, whose drain may take `seconds`: systemd is asked to wait."""
        timeout = int((seconds + STOP_MARGIN) * 1_000_000)
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={timeout}")

    def watchdog(self) -> bool:
        """Send one keep-alive; False when it has to be sent again."""
        return self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> bool:
        """False when there is no room for it now."""
        if not self._address:
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.setblocking(False)
                connection.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError as error:
            if self._is_reachable:
                log.warning("systemd not notified", extra={"error": str(error)})
            self._is_reachable = False
            return not isinstance(error, BlockingIOError)
        self._is_reachable = True
        return True


async def update_status(
    notifier: SystemdNotifier,
    is_ready: Callable[[], bool],
    status: Callable[[], str],
    interval: float = STATUS_INTERVAL,
) -> None:
    """Keep the status up to date, for ever; a start or reload has finished when `is_ready()`."""
    while True:
        if is_ready() and not notifier.is_ready:
            notifier.ready(status())
        else:
            notifier.status(status())
        await asyncio.sleep(interval)


async def feed_watchdog(notifier: SystemdNotifier, what_is_stuck: Callable[[], str | None]) -> None:
    """Send keep-alives for ever while `what_is_stuck()` is None; without them systemd kills us."""
    period = notifier.watchdog_period
    if period is None:
        await asyncio.Event().wait()  # for ever, as with a watchdog
        return
    was_stuck = False
    while True:
        stuck, is_sent = what_is_stuck(), True
        if stuck is None:
            is_sent = notifier.watchdog()
            if was_stuck:
                log.info("progress again, watchdog fed")
        elif not was_stuck:
            log.error("no progress, watchdog not fed", extra={"stuck": stuck})
        was_stuck = stuck is not None
        await asyncio.sleep(period if is_sent else RETRY_INTERVAL)


def _address(text: str) -> str:
    """The socket's address as Python has it: an abstract one begins with a zero byte, not "@"."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else ""  # others are for virtual machines (vsock)


def _watchdog_period(usec: str, pid: str) -> float | None:
    is_ours = not pid or pid == str(os.getpid())
    return int(usec) / 2_000_000 if is_ours and usec.isdecimal() and int(usec) else None


def _fitting(text: str) -> str:
    return printable(text)[:STATUS_LIMIT]
