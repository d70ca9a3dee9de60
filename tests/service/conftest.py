"""What the tests of the service controller share: Nodes that are debounced soon."""

import pytest

from workers.service import hosts


@pytest.fixture(autouse=True)
def _debounced_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "NODE_DEBOUNCE", 0.02)
