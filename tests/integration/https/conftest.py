"""What the tests of the HTTPS server share."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.e2e.conftest import api, cloud, cluster, env, proxy, where
from tests.integration.https.review_api import ReviewApi, serving_reviews
from tests.integration.https.served import QUICK, LocalServer, serving

__all__ = ["api", "cloud", "cluster", "env", "proxy", "where"]


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is no Pod, whatever runs these tests."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.fixture
async def reviews() -> AsyncIterator[ReviewApi]:
    async with serving_reviews() as reviews:
        yield reviews


@pytest.fixture
async def server(reviews: ReviewApi, request: pytest.FixtureRequest) -> AsyncIterator[LocalServer]:
    """One with the default flags, and the timings of the mark `timings`."""
    mark = request.node.get_closest_marker("timings")
    async with serving(reviews, replace(QUICK, **(mark.kwargs if mark else {}))) as server:
        yield server
