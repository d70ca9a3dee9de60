"""Results of reviews: evicted when there are many, and ended when nobody waits for them."""

import asyncio

import pytest

from ccm.supervisor.https.reviews import MAX_CACHED_REVIEWS, ReviewCache
from tests.support.waiting import let_run


@pytest.fixture
async def cache() -> ReviewCache[object]:
    return ReviewCache(lambda _: 60.0)


async def test_a_failure_that_no_one_waits_for_is_not_logged(cache: ReviewCache[object]) -> None:
    go = asyncio.Event()

    async def fail() -> str:
        await go.wait()
        raise ValueError("no")

    only = asyncio.create_task(cache.get("k", fail))
    await let_run()
    only.cancel()
    go.set()
    await let_run()


async def test_the_oldest_result_is_evicted(cache: ReviewCache[object]) -> None:
    reviewed: list[int] = []

    async def get(key: int) -> None:
        async def review() -> str:
            reviewed.append(key)
            return "result"

        await cache.get(key, review)

    for key in (*range(MAX_CACHED_REVIEWS + 1), MAX_CACHED_REVIEWS, 0):
        await get(key)
    assert reviewed == [*range(MAX_CACHED_REVIEWS + 1), 0]


async def test_closing_cancels_reviews_in_flight(cache: ReviewCache[object]) -> None:
    waiting = asyncio.create_task(cache.get("k", asyncio.Event().wait))
    await let_run()
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
