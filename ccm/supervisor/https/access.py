"""Authorization, and the middleware that applies it: only permitted requests reach a handler."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from aiohttp import web

from ccm import metrics
from ccm.counters import Counters
from ccm.model.objects import Json, text
from ccm.settings import Settings
from ccm.supervisor.https.authentication import (
    ANONYMOUS,
    Authenticator,
    Unauthenticated,
    UserInfo,
)
from ccm.supervisor.https.connection import client_of
from ccm.supervisor.https.reviews import (
    ReviewBudget,
    ReviewCache,
    Reviewer,
    ReviewFailed,
    TooManyReviews,
)

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PRIVILEGED_GROUP = "system:masters"
CHANGING_VERBS = ("put", "delete")  # which no open path has: it is open to be read
PUBLIC = ("/healthz", "/livez", "/readyz")  # which everyone may read, by Kubernetes' own roles
OTHER_PATH = "other"  # the label of requests without a route
WARNING_INTERVAL = 60.0  # seconds: anybody can make us ask the API server
ANONYMOUS_REVIEWS, ANONYMOUS_WINDOW = 20, 10.0  # so many in so many seconds, whatever the paths
REVIEWS_OF_A_USER, WINDOW_OF_A_USER = 100, 10.0  # the same for each who has valid credentials


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Of a SubjectAccessReview, with the cluster's reason."""

    is_allowed: bool
    reason: str = ""


class Authorizer:
    """Decides about verbs on paths; a verb is the HTTP method in lower case."""

    def __init__(self, settings: Settings, reviewer: Reviewer, counters: Counters) -> None:
        self._settings, self._reviewer, self._counters = settings, reviewer, counters
        self._decisions: ReviewCache[AccessDecision] = ReviewCache(self._ttl)
        self._anonymous = ReviewBudget(ANONYMOUS_REVIEWS, ANONYMOUS_WINDOW)
        self._named = ReviewBudget(REVIEWS_OF_A_USER, WINDOW_OF_A_USER)

    def is_always_allowed(self, path: str) -> bool:
        """Whether the path may be read without authentication and authorization."""
        return any(
            path.startswith(allowed[:-1]) if allowed.endswith("*") else path == allowed
            for allowed in self._settings.authorization_always_allow_paths
        )

    async def authorize(
        self, user: UserInfo, verb: str, path: str, resource: str
    ) -> AccessDecision:
        """Raises `ReviewFailed` when the API server does not decide, or `TooManyReviews`.

        `resource` is what there is at this path, such as `/livez/{check}`. Without any, or where
        every account may read it, a review is spent in any case. One path alone
        has reviews of its own: what someone asks about others keeps no one from it.
        """
        if PRIVILEGED_GROUP in user.groups:
            return AccessDecision(True)
        key = (user, verb, path)
        who = user.name, path if resource == path else ""
        is_public = resource in PUBLIC and user != ANONYMOUS
        is_own = bool(resource) and not is_public
        return await self._decisions.get(key, lambda: self._review(*key, who, is_own))

    async def close(self) -> None:
        """Cancel the reviews in flight."""
        await self._decisions.close()

    def _ttl(self, decision: AccessDecision) -> float:
        if decision.is_allowed:
            return self._settings.authorization_webhook_cache_authorized_ttl
        return self._settings.authorization_webhook_cache_unauthorized_ttl

    async def _review(
        self, user: UserInfo, verb: str, path: str, who: tuple[str, str], is_own: bool
    ) -> AccessDecision:
        budget = self._anonymous if user == ANONYMOUS else self._named
        budget.spend(who, (user, verb, path))
        result, is_good = "failed", None
        spec: Json = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        try:
            is_known = (user, verb, path) in budget
            status = await self._reviewer.create("SubjectAccessReview", spec, is_known)
            is_allowed = status.get("allowed") is True and status.get("denied") is not True
            result, is_good = "yes" if is_allowed else "no", is_allowed and is_own
        finally:
            self._counters.count(metrics.HTTPS_REVIEWS, "access", result)
            budget.on_result((user, verb, path), is_good)
        return AccessDecision(is_allowed, text(status.get("reason")))


class AccessMiddleware:
    """Passes a permitted request to its handler, or responds with a Status as the API server does.

    Paths that are always allowed are so whatever the state of the API server is.
    """

    def __init__(
        self, authenticator: Authenticator, authorizer: Authorizer, counters: Counters
    ) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer
        self._counters = counters
        self._no_warning_until = 0.0

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The response to the request, counted."""
        code = 500
        try:
            refusal = await self._refusal(request)
            response = await handler(request) if refusal is None else refusal
            code = response.status
            return response
        except web.HTTPException as error:
            code = error.status
            raise
        finally:
            path = _resource(request) or OTHER_PATH
            self._counters.count(metrics.HTTPS_REQUESTS, path, str(code))

    async def _refusal(self, request: web.Request) -> web.Response | None:
        path, verb = request.path, request.method.lower()
        resource, client = _resource(request), client_of(request)
        if verb not in CHANGING_VERBS and self._authorizer.is_always_allowed(path):
            return None
        try:
            user = await self._authenticator.authenticate(request)
            decision = await self._authorizer.authorize(user, verb, path, resource)
        except Unauthenticated:
            return _status(401, "Unauthorized", "Unauthorized")
        except TooManyReviews:
            return _status(429, "TooManyRequests", "too many requests without valid credentials")
        except ReviewFailed as error:
            self._warn(str(error))
            why = "the API server did not authenticate or authorize the request: see the log"
            return _status(500, "InternalError", why)
        if decision.is_allowed:
            # Others are permitted what everyone is, such as /version: those of a tenant, too.
            if client and resource not in ("", *PUBLIC) and user != ANONYMOUS:
                self._authenticator.on_permitted(request, user)
                client.is_permitted = True
            return None
        why = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
        return _status(403, "Forbidden", f"{why}: {decision.reason}" if decision.reason else why)

    def _warn(self, why: str) -> None:
        if time.monotonic() >= self._no_warning_until:
            self._no_warning_until = time.monotonic() + WARNING_INTERVAL
            log.warning("request refused: review failed", extra={"why": why})


def _resource(request: web.Request) -> str:
    """What is asked for, such as `/livez/{check}`; empty where there is nothing."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""


def _status(code: int, reason: str, message: str) -> web.Response:
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
