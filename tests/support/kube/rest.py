"""A small synchronous client for the few calls that a test makes itself; not the product's."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

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
    """Sends single requests, each on a connection of its own."""

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        """`ca_file` is read with the first request."""
        self._url, self._ca_file = url, ca_file

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=self._ca_file)
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # a proxy from the environment is not for loopback
            urllib.request.HTTPSHandler(context=context),
        )

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
        request = urllib.request.Request(
            self._url + path, data=data, headers=dict(headers), method=method
        )
        try:
            with self._opener.open(request, timeout=timeout()) as response:
                return Answer(response.status, _parse(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _parse(error.read()))


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
