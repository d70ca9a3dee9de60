"""When the cloud's routes are listed again, for which Nodes, and whether a list is complete."""

import time
from collections.abc import Callable

from ccm.errors import RetryAfter
from workers.timings import Timings


class Listing:
    """One list for all that wait for one; `schedule` runs the full pass in some seconds.

    A route is only deleted on the strength of a list that began after the last change of the Node
    to whose network it is, or else of that to which it leads: only then does it say whose it is.
    """

    def __init__(self, schedule: Callable[[float], None], timings: Timings) -> None:
        self._schedule, self._timings = schedule, timings
        self._began = self._listed_at = self._asked_at = float("-inf")
        self._changed: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._is_asked = self._is_incomplete = False

    @property
    def is_done(self) -> bool:
        """Whether there was any list that was complete."""
        return self._listed_at > float("-inf")

    @property
    def is_awaited(self) -> bool:
        """Whether a Node waits for the list."""
        return bool(self._waiting)

    @property
    def age(self) -> float:
        """Seconds since the last list that was complete."""
        return time.monotonic() - self._listed_at

    def changed(self, name: str) -> None:
        """The Node is not what it was, or no longer there."""
        self._changed[name] = time.monotonic()

    def covers(self, *names: str) -> bool:
        """Whether the last list began after the last change of all these Nodes."""
        return all(self._changed.get(name, self._listed_at) <= self._listed_at for name in names)

    def ask(self, name: str = "") -> None:
        """Have a full pass that begins from now on, soon; the key `name` waits for its list."""
        if name:
            self._waiting.add(name)  # when it is served, it sees for itself whether that will do
        else:
            self._asked_at = time.monotonic()
        if not self._is_asked:  # else it is under way, scheduled, or in its back-off
            self._is_asked = True
            due = self._listed_at + self._timings.route_list_interval
            self._schedule(max(due - time.monotonic(), 0.0))

    def begin(self) -> None:
        self._began = time.monotonic()

    def verify_complete(self, lacking: int) -> None:
        """Raise `RetryAfter` for a list that lacks routes which Nodes say they have, once.

        A cloud may leave out a part of an answer without a word; it hardly does so twice.
        """
        if lacking and not self._is_incomplete:
            self._is_incomplete = True
            what = (
                f"the cloud's list lacks the routes of {lacking} nodes whose condition reports them"
            )
            raise RetryAfter(f"{what}: read again", self._timings.incomplete_route_list_retry)
        self._is_incomplete = False

    def end(self) -> set[str]:
        """The list is in the table: who waited for it."""
        waited, self._waiting = self._waiting, set()
        self._is_asked = False
        self._listed_at = self._began
        self._changed = {n: at for n, at in self._changed.items() if at > self._listed_at}
        if self._asked_at > self._began:
            self.ask()
        return waited

    def give_up(self) -> None:
        """There is nothing to compare a list with; the next one who asks is heard."""
        self._is_asked = False
