"""What the tests of the HTTPS server share."""

from collections.abc import AsyncIterator

import pytest

from tests.https.review_api import ReviewApi, serving_reviews
from tests.https.served import LocalServer, serving
from tests.proc.conftest import api, cloud, cluster, env, where

__all__ = ["api", "cloud", "cluster", "env", "where"]


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is no Pod, whatever runs these tests; and what changes is seen soon."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("ccm.supervisor.https.server.FILE_POLL_INTERVAL", 0.02)


@pytest.fixture
async def reviews() -> AsyncIterator[ReviewApi]:
    async with serving_reviews() as reviews:
        yield reviews


@pytest.fixture
async def server(reviews: ReviewApi) -> AsyncIterator[LocalServer]:
    """One with the default flags."""
    async with serving(reviews) as server:
        yield server
