"""What stands before every page: who asks, whether he may, and what one reads who may not."""

import logging
import time
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from ccm import metrics
from ccm.counters import Counters
from ccm.supervisor.https.authentication import Authenticator, Unauthenticated
from ccm.supervisor.https.authorization import Authorizer
from ccm.supervisor.https.reviews import ReviewFailed

log = logging.getLogger(__name__)

Page = Callable[[web.Request], Awaitable[web.StreamResponse]]
ELSEWHERE = "other"  # the path of requests for what is not there
QUIET = 60.0  # seconds between two complaints


class Doorkeeper:
    """Lets a request through to its page, or answers it with a Status as the API server does.

    Paths that are open to everybody are so whatever the state of the API server is.
    """

    def __init__(
        self, authenticator: Authenticator, authorizer: Authorizer, counters: Counters
    ) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer
        self._counters = counters
        self._quiet_until = 0.0

    async def admit(self, request: web.Request, page: Page) -> web.StreamResponse:
        """The answer to the request, counted."""
        code = 500
        try:
            refusal = await self._refusal(request)
            answer = await page(request) if refusal is None else refusal
            code = answer.status
            return answer
        except web.HTTPException as error:
            code = error.status
            raise
        finally:
            resource = request.match_info.route.resource
            path = resource.canonical if resource else ELSEWHERE
            self._counters.count(metrics.SERVED, path, str(code))

    async def _refusal(self, request: web.Request) -> web.Response | None:
        path, verb = request.path, request.method.lower()
        if self._authorizer.is_open(path):
            return None
        try:
            user = await self._authenticator.identify(request)
            decision = await self._authorizer.decide(user, verb, path)
        except Unauthenticated:
            return status(401, "Unauthorized", "Unauthorized")
        except ReviewFailed as error:
            self._complain(str(error))
            why = "the API server did not say who asks and what he may: see the log"
            return status(500, "InternalError", why)
        if decision.is_allowed:
            return None
        why = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
        return status(403, "Forbidden", f"{why}: {decision.reason}" if decision.reason else why)

    def _complain(self, why: str) -> None:
        """Once a minute: anybody can make us ask."""
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + QUIET
            log.warning("request turned away: no review", extra={"why": why})


def status(code: int, reason: str, message: str) -> web.Response:
    """A failure in the form of the Kubernetes API."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.Response(body=orjson.dumps(body), status=code, content_type="application/json")
