"""What makes a mutant cheaper to try: the quickest tests run first, and the load is known then."""

import json
from pathlib import Path

import pytest

from tests.support.deadlines import slowness

STATS = Path("mutmut-stats.json")  # mutmut writes it where it then runs pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if STATS.exists():
        seconds = json.loads(STATS.read_text())["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))


def pytest_collection_finish() -> None:
    """In the process that others are forked from, which runs no test itself."""
    slowness()
