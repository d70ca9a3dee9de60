"""What the tests of the service duty share: Nodes that come to rest soon."""

import pytest

from workers.service import hostset


@pytest.fixture(autouse=True)
def _restless_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostset, "QUIET", 0.02)
