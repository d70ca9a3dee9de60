"""A small synchronous client for the few calls that a test makes itself; not the product's."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from select import select
from typing import Any
from urllib.parse import urlsplit

from tests.support.deadlines import timeout

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


class Refused(Exception):
    """The API server answered, and not with success."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answered; a failure is an answer too."""

    status: int
    body: Any
    """The parsed JSON, or the text when it is none."""

    def expect(self, *statuses: int) -> "Answer":
        """Return self when the status is one of `statuses` (or any 2xx when none is given)."""
        if self.status in statuses or (not statuses and 200 <= self.status < 300):
            return self
        raise Refused(f"the API server answered {self.status}: {self.body}")


class RestClient:
    """Sends single requests, on connections that it keeps until `close`."""

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        """`ca_file` is read with the first request."""
        self._url, self._ca_file = urlsplit(url), ca_file
        self._idle: list[HTTPConnection] = []

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str],
    ) -> Answer:
        """Send one request; raise OSError when no answer came."""
        data = None if body is None else json.dumps(body).encode()
        connection = self._connected()
        try:
            connection.request(method, path, data, dict(headers))
            response = connection.getresponse()
            answer = Answer(response.status, _parse(response.read()))
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def _connected(self) -> HTTPConnection:
        """A connection that is kept, unless the server has closed it, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.sock and not select([connection.sock], (), (), 0)[0]:
                connection.sock.settimeout(timeout())
                return connection
            connection.close()
        if self._url.scheme == "http":
            return HTTPConnection(self._url.netloc, timeout=timeout())
        return HTTPSConnection(self._url.netloc, timeout=timeout(), context=self._context)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._ca_file)


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
