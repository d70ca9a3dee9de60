"""TokenReviews and SubjectAccessReviews: one timeout, few retries, results cached for a while."""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from ccm.decide.budget import Allowances
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping
from ccm.supervisor.https.timings import HttpsTimings

T = TypeVar("T")

RETRY_JITTER = 0.2
MAX_CACHED_REVIEWS = 1024
KNOWN_IN_FLIGHT, STRANGERS_IN_FLIGHT = 4, 4
"""Reviews of who was permitted before, and of all others."""

RESOURCES = {
    "TokenReview": "/apis/authentication.k8s.io/v1/tokenreviews",
    "SubjectAccessReview": "/apis/authorization.k8s.io/v1/subjectaccessreviews",
}

ASKED = {
    "TokenReview": ("token",),
    "SubjectAccessReview": ("user", "groups", "nonResourceAttributes"),
}
"""What an answer has of its request; another's may come from a proxy that mixes them up."""

MAX_SENDERS = 1024  # of which a budget keeps what they spent


class ReviewFailed(Exception):
    """The API server gave no usable response: the request must be refused."""


class TooManyReviews(Exception):
    """Unknown senders have had their reviews for now."""


class ReviewBudget:
    """How many reviews unknown senders cost the API server: so many at once, and in each window.

    Those of what was good at its last review cost nothing, however much its sender spent.
    """

    def __init__(self, most: int, window: float) -> None:
        self._allowances = Allowances[Hashable](most, window / most, MAX_SENDERS)
        self._good: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, what: Hashable) -> bool:
        """Whether it was good at its last review."""
        return what in self._good

    def spend(self, who: Hashable, what: Hashable) -> None:
        """Count a review; raises `TooManyReviews` when there is none left for this sender now."""
        if what not in self._good and self._allowances.take(who, time.monotonic()):
            raise TooManyReviews

    def give_back(self, who: Hashable) -> None:
        """One that this sender spent costs nothing."""
        self._allowances.give_back(who)

    def on_result(self, what: Hashable, is_good: bool | None) -> None:
        """What came of it: only what is good costs nothing from now on; None for a failed one."""
        if is_good is False:
            self._good.pop(what, None)
        elif is_good:
            self._good[what] = None
            self._good.move_to_end(what)
            if len(self._good) > MAX_CACHED_REVIEWS:
                self._good.popitem(last=False)


class Reviewer:
    """Creates reviews on one API server."""

    def __init__(self, kube: Kube, timings: HttpsTimings) -> None:
        self._kube, self._timeout = kube, timings.review_timeout
        self._backoff = timings.review_backoff
        self._slots = {
            True: asyncio.Semaphore(KNOWN_IN_FLIGHT),
            False: asyncio.Semaphore(STRANGERS_IN_FLIGHT),
        }

    async def create(self, kind: str, spec: Json, is_known: bool) -> Mapping[str, Any]:
        """The `status` of a new review; raises `ReviewFailed` within the timeout.

        Who is not known has slots apart: others do not wait for them.
        """
        path = RESOURCES[kind]
        body = {"apiVersion": f"{path.split('/')[2]}/v1", "kind": kind, "spec": spec}
        try:
            async with asyncio.timeout(self._timeout), self._slots[is_known]:
                review = await self._post(path, body)
        except (TimeoutError, KubernetesError, Unreachable) as error:
            why = str(error) or f"no response within {self._timeout:g} s"
            raise ReviewFailed(f"{kind}: {why}") from error
        asked = mapping(review.get("spec"))
        if any(asked.get(part) != spec[part] for part in ASKED[kind]):
            raise ReviewFailed(f"{kind}: the answer is about another request")
        return mapping(review.get("status"))

    async def _post(self, path: str, body: Json) -> Json:
        for delay in self._backoff:
            try:
                return await self._kube.post(path, body, self._timeout)
            except KubernetesError as error:
                if error.status < 500 and error.status != 429:
                    raise
            except Unreachable:
                pass
            await asyncio.sleep(delay * random.uniform(1.0, 1.0 + RETRY_JITTER))
        return await self._kube.post(path, body, self._timeout)


class ReviewCache(Generic[T]):
    """Results by key; concurrent lookups of one key share one review.

    `ttl` says for how many seconds a result counts. A failure is not cached: it counts for those
    who wait for it.
    """

    def __init__(self, ttl: Callable[[T], float]) -> None:
        self._ttl = ttl
        self._cached: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()  # until when
        self._in_flight: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, review: Callable[[], Awaitable[T]]) -> T:
        """The result; a caller that is cancelled does not cancel the review for the others."""
        cached = self._cached.get(key)
        if cached and time.monotonic() < cached[1]:
            return cached[0]
        if (task := self._in_flight.get(key)) is None:
            task = asyncio.create_task(self._review(key, review))
            task.add_done_callback(_retrieve_exception)
            self._in_flight[key] = task
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the reviews in flight."""
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _review(self, key: Hashable, review: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await review()
        finally:
            del self._in_flight[key]
        self._cached[key] = (result, time.monotonic() + self._ttl(result))
        self._cached.move_to_end(key)
        if len(self._cached) > MAX_CACHED_REVIEWS:
            self._cached.popitem(last=False)
        return result


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Else asyncio logs a failure for which nothing waits any more."""
    if not task.cancelled():
        task.exception()
