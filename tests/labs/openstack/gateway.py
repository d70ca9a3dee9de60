"""In front of the WSGI application of any service: a log of every request, and faults by rules.

`calls/<service>.jsonl` has a line for each request that was answered, with its body if it is none
for Keystone; `under-way` has a file for each that was not, with who makes it.
`faults.json` is a list of rules, of which the
first that matches a request decides. Keys that select: `service`; `method`; `path` and `agent`,
regular expressions; `count`, at most so many requests. Keys that act: `status`, with `retry_after`
and `body`, is answered instead; `delay`, seconds to wait first; `after`, the service does the work
and only its answer is replaced.
"""

import importlib
import io
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

Rule = dict[str, Any]
Start = Callable[..., Any]

SERVICE = os.environ["LAB_SERVICE"].removesuffix("-api")
RUN = Path(os.environ["RUN"])
CHECK_INTERVAL = 0.05  # seconds between two looks at the file of rules
# Some services read their configuration files from the command line.
sys.argv = ["lab", *os.environ.get("LAB_ARGV", "").split()]
inner = importlib.import_module(os.environ["LAB_APP"]).application
calls = (RUN / "calls" / f"{SERVICE}.jsonl").open("a", buffering=1)
UNDER_WAY = RUN / "under-way"
UNDER_WAY.mkdir(exist_ok=True)
numbers = count()


class Rules:
    """The rules as the file has them now, and how often each was used since."""

    def __init__(self) -> None:
        self._lock, self._changed_at, self._checked_at = threading.Lock(), 0, 0.0
        self._rules: list[Rule] = []

    def hit(self, environ: dict[str, Any]) -> Rule | None:
        """The rule that this request falls under, if any."""
        with self._lock:
            self._read()
            for rule in self._rules:
                if _matches(rule, environ) and rule["hits"] < rule.get("count", rule["hits"] + 1):
                    rule["hits"] += 1
                    return rule
        return None

    def _read(self) -> None:
        if time.monotonic() < self._checked_at + CHECK_INTERVAL:
            return
        self._checked_at, file = time.monotonic(), RUN / "faults.json"
        changed_at = file.stat().st_mtime_ns if file.exists() else 0
        if changed_at != self._changed_at:
            self._changed_at = changed_at
            found = json.loads(file.read_text()) if changed_at else []
            self._rules = [{**rule, "hits": 0} for rule in found]


rules = Rules()


def path_of(environ: dict[str, Any]) -> str:
    return str(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))


def _matches(rule: Rule, environ: dict[str, Any]) -> bool:
    method, agent = environ["REQUEST_METHOD"], environ.get("HTTP_USER_AGENT", "")
    return bool(
        rule.get("service", SERVICE) == SERVICE
        and rule.get("method", method) == method
        and re.search(rule.get("path", ""), path_of(environ))
        and re.search(rule.get("agent", ""), agent)
    )


def answer(rule: Rule, start: Start) -> list[bytes]:
    """What is answered in place of the service."""
    code = rule["status"]
    error = {"code": code, "title": "lab", "message": "injected by the lab"}
    body = rule.get("body", json.dumps({"error": error})).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    if "retry_after" in rule:
        headers.append(("Retry-After", str(rule["retry_after"])))
    start(f"{code} Injected", headers)
    return [body]


def ask(environ: dict[str, Any], start: Start) -> list[bytes]:
    """The service's whole answer, read to its end."""
    parts: Iterable[bytes] = inner(environ, start)
    try:
        return list(parts)
    finally:
        if close := getattr(parts, "close", None):
            close()


@contextmanager
def under_way(environ: dict[str, Any]) -> Iterator[None]:
    """Others see meanwhile that the request is not answered."""
    file = UNDER_WAY / f"{SERVICE}-{next(numbers)}"
    about = (environ["REQUEST_METHOD"], path_of(environ), environ.get("HTTP_USER_AGENT", ""))
    file.write_text(" ".join(about))
    try:
        yield
    finally:
        file.unlink()


def application(environ: dict[str, Any], start: Start) -> list[bytes]:
    """The service, or what a rule has in place of it."""
    with under_way(environ):
        return serve(environ, start)


def serve(environ: dict[str, Any], start: Start) -> list[bytes]:
    """The same, logged when it is done."""
    began, seen = time.time(), ["500"]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)

    def started(status: str, *rest: Any) -> Any:
        seen[0] = status
        return start(status, *rest)

    try:
        rule = rules.hit(environ) or {}
        time.sleep(rule.get("delay", 0))
        if "status" not in rule:
            return ask(environ, started)
        if rule.get("after"):
            ask(environ, lambda *_: None)
        return answer(rule, started)
    finally:
        about = {
            "t": round(began, 4),
            "service": SERVICE,
            "method": environ["REQUEST_METHOD"],
            "path": path_of(environ),
            "query": environ.get("QUERY_STRING", ""),
            "agent": environ.get("HTTP_USER_AGENT", ""),
            "body": "" if SERVICE == "keystone" else body.decode(errors="replace"),
            "status": int(seen[0][:3]),
            "ms": round((time.time() - began) * 1000, 1),
        }
        calls.write(json.dumps(about) + "\n")
