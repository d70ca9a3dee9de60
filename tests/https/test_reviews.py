"""Results of reviews: cached, shared by concurrent requests, and evicted."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ccm.supervisor.https.reviews import MAX_CACHED_REVIEWS, ReviewCache
from tests.worlds.waiting import let_run


class Reviews:
    """A cache, and reviews that complete when they are told to."""

    def __init__(self) -> None:
        self.cache: ReviewCache[str] = ReviewCache(lambda _: 60.0)
        self.keys: list[str] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None

    def get(self, key: str = "k") -> "asyncio.Task[str]":
        return asyncio.create_task(self.cache.get(key, self._of(key)))

    def _of(self, key: str) -> Callable[[], Awaitable[str]]:
        async def review() -> str:
            self.keys.append(key)
            await self.go.wait()
            if self.error:
                raise self.error
            return f"result {len(self.keys)}"

        return review


@pytest.fixture
async def reviews() -> Reviews:
    return Reviews()


async def test_a_failure_that_nobody_waits_for_is_not_logged(reviews: Reviews) -> None:
    only = reviews.get()
    await let_run()
    only.cancel()
    reviews.error = ValueError("no")
    reviews.go.set()
    await let_run()
    assert reviews.keys == ["k"]


async def test_the_oldest_result_is_evicted(reviews: Reviews) -> None:
    reviews.go.set()
    await reviews.get("first")
    for number in range(MAX_CACHED_REVIEWS):
        await reviews.get(f"other {number}")
    await reviews.get(f"other {MAX_CACHED_REVIEWS - 1}")
    assert len(reviews.keys) == MAX_CACHED_REVIEWS + 1
    await reviews.get("first")
    assert reviews.keys[-1] == "first"


async def test_closing_cancels_reviews_in_flight(reviews: Reviews) -> None:
    waiting = reviews.get()
    await let_run()
    await reviews.cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
