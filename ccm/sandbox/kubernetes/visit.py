"""One HTTP request from its arrival on: what it is about, and its entry in the log."""

from __future__ import annotations

import time
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from ccm.sandbox.kubernetes.call import Call
from ccm.sandbox.kubernetes.failures import Failure
from ccm.sandbox.kubernetes.faults import Occasion
from ccm.sandbox.kubernetes.place import Place, Places, verb_of
from ccm.sandbox.kubernetes.requests import Request, Requests


class Visit:
    """A request that is being answered."""

    def __init__(self, request: web.BaseRequest, places: Places, requests: Requests) -> None:
        self.request = request
        self._requests = requests
        self._started = time.monotonic()
        self._is_logged = False
        path, _, self._query_string = request.raw_path.partition("?")
        self.path = unquote(path)
        self.query = dict(parse_qsl(self._query_string, keep_blank_values=True))
        self.place = places.find(self.path)
        self.verb = request.method.lower()
        if self.place is not None:
            self.verb = verb_of(request.method, self.place, self.query)
        self.user_agent = request.headers.get("User-Agent", "")

    @property
    def occasion(self) -> Occasion:
        """What faults are matched against."""
        if self.place is None:
            return Occasion(self.verb, self.path, "", self.user_agent)
        return Occasion(self.verb, self.place.kind.plural, self.place.name, self.user_agent)

    def call(self, place: Place, body: bytes) -> Call:
        """Return what is to be done at a resource; refuse a method without a meaning there."""
        if not self.verb:
            raise Failure(405, "the server does not allow this method on the requested resource")
        headers = self.request.headers
        content_type = headers.get("Content-Type", "").partition(";")[0].strip()
        accept = headers.get("Accept", "")
        return Call(self.verb, place, self.query, accept, content_type, body)

    def log(self, status: int) -> None:
        """Enter the request into the log, once."""
        if self._is_logged:
            return
        self._is_logged = True
        place = self.place
        self._requests.add(
            Request(
                verb=self.verb,
                path=self.path,
                query=self._query_string,
                resource=place.kind.plural if place else "",
                subresource=place.subresource if place else "",
                namespace=place.namespace if place else "",
                name=place.name if place else "",
                user_agent=self.user_agent,
                content_type=self.request.headers.get("Content-Type", ""),
                status=status,
                seconds=time.monotonic() - self._started,
            )
        )
