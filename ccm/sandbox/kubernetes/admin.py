"""The paths below /sandbox, by which a person or another process steers a sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Protocol

import orjson

from ccm.sandbox.kubernetes.failures import Failure, bad_request
from ccm.sandbox.kubernetes.faults import Fault, Faults
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.requests import Requests

ROOT = "/sandbox"


class Steered(Protocol):
    """What can be done to a running sandbox."""

    faults: Faults
    requests: Requests

    def compact(self) -> None: ...
    def drop_soon(self) -> None: ...
    def restart_soon(self, down: float) -> None: ...


def administer(sandbox: Steered, method: str, path: str, body: bytes) -> Any:
    """Perform one request and return the JSON to answer with.

    GET, POST, DELETE /sandbox/faults     list, add, clear; DELETE /sandbox/faults/N removes one
    GET, DELETE       /sandbox/requests   the log of requests, forget it
    POST              /sandbox/compact    forget history: every older watch is too old
    POST              /sandbox/drop       drop every connection
    POST              /sandbox/restart    the same, and refuse new ones for {"seconds": N}
    """
    what, _, rest = path.removeprefix(ROOT).strip("/").partition("/")
    match method, what:
        case "GET", "faults":
            return list(sandbox.faults.describe())
        case "POST", "faults":
            return {"id": sandbox.faults.add(_fault(body))}
        case "DELETE", "faults":
            return _remove(sandbox.faults, rest)
        case "GET", "requests":
            return list(_told(sandbox.requests))
        case "DELETE", "requests":
            sandbox.requests.clear()
        case "POST", "compact":
            sandbox.compact()
        case "POST", "drop":
            sandbox.drop_soon()
        case "POST", "restart":
            sandbox.restart_soon(float(_document(body).get("seconds", 0)))
        case _:
            raise Failure(404, f"no such thing below {ROOT}: {method} {path}")
    return {}


def _remove(faults: Faults, number: str) -> Object:
    if not number:
        faults.clear()
    elif not (number.isdecimal() and faults.remove(int(number))):
        raise Failure(404, f"no fault has the id {number}")
    return {}


def _fault(body: bytes) -> Fault:
    try:
        return Fault.parse(_document(body))
    except ValueError as fault:
        raise bad_request(str(fault)) from fault


def _document(body: bytes) -> Object:
    try:
        document = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as fault:
        raise bad_request(f"not JSON: {fault}") from fault
    if not isinstance(document, dict):
        raise bad_request("a JSON object is needed")
    return document


def _told(requests: Requests) -> Iterator[Object]:
    for request in requests:
        yield asdict(request)
