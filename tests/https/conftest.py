"""What the tests of the HTTPS server share."""

from collections.abc import AsyncIterator

import pytest

from tests.https.reviewer import Reviewer, reviewing
from tests.proc.conftest import api, cloud, cluster, where, witness

__all__ = ["api", "cloud", "cluster", "where", "witness"]


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is no Pod, whatever runs these tests; and what changes is seen soon."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("ccm.supervisor.https.server.LOOK", 0.02)


@pytest.fixture
async def reviewer() -> AsyncIterator[Reviewer]:
    async with reviewing() as reviewer:
        yield reviewer
