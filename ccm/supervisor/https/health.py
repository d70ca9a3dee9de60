"""Health checks: small questions with a name, and the answer in the API server's words."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)

PING = "ping"


@dataclass(frozen=True, slots=True)
class Check:
    """`look` returns None when all is well, else what is wrong."""

    name: str
    look: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Report:
    """What one look found: `text` names the checks, never the reasons, which are in the log."""

    is_healthy: bool
    text: str


@dataclass(frozen=True, slots=True)
class Looked:
    """For one check of one endpoint: whether it was well last time, and how often it was not."""

    name: str
    endpoint: str
    is_well: bool
    successes: int
    errors: int


class Health:
    """The endpoints (`healthz`, `livez`, `readyz`) and the checks behind each, asked for anew."""

    def __init__(self, checks: Mapping[str, Callable[[], Iterable[Check]]]) -> None:
        self._checks = checks
        self._failing: dict[tuple[str, str], str] = {}
        self._looks: Counter[tuple[str, str, bool]] = Counter()
        self._last: dict[tuple[str, str], bool] = {}

    @property
    def endpoints(self) -> Iterable[str]:
        return self._checks

    def report(self, endpoint: str, excluded: Iterable[str] = ()) -> Report:
        """Look at every check that is not excluded."""
        left, lines, failed = dict.fromkeys(excluded), [], False
        for check in self._checks[endpoint]():
            if check.name in left:
                del left[check.name]
                lines.append(f"[+]{check.name} excluded: ok")
            elif self._look(endpoint, check) is None:
                lines.append(f"[+]{check.name} ok")
            else:
                failed = True
                lines.append(f"[-]{check.name} failed: reason withheld")
        if left:
            names = ", ".join(f'"{name}"' for name in left)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
        return Report(not failed, "\n".join(lines) + "\n")

    def one(self, endpoint: str, name: str) -> Report | None:
        """One check alone, with its reason; None when there is no such check."""
        for check in self._checks[endpoint]():
            if check.name == name:
                why = self._look(endpoint, check)
                return Report(why is None, f"internal server error: {why}\n" if why else "ok")
        return None

    def looked(self) -> Iterator[Looked]:
        """What every check so far came to."""
        for (endpoint, name), is_well in sorted(self._last.items()):
            counts = (self._looks[endpoint, name, True], self._looks[endpoint, name, False])
            yield Looked(name, endpoint, is_well, *counts)

    def forget(self) -> None:
        """Count anew."""
        self._looks.clear()
        self._last.clear()

    def _look(self, endpoint: str, check: Check) -> str | None:
        why = check.look()
        key = (endpoint, check.name)
        self._last[key] = why is None
        self._looks[(*key, why is None)] += 1
        if why and key not in self._failing:
            level = logging.INFO if endpoint == "readyz" else logging.WARNING
            log.log(level, "health check fails", extra={"check": "/".join(key), "why": why})
        elif not why and key in self._failing:
            log.info("health check passes again", extra={"check": "/".join(key)})
        if why:
            self._failing[key] = why
        else:
            self._failing.pop(key, None)
        return why
