"""What the unit tests share: how Hypothesis works here, and a directory that a socket fits in."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

# No time limit per example: on a shared machine it measures the neighbours.
settings.register_profile("unit", deadline=None, max_examples=100, database=None, print_blob=True)
settings.load_profile("unit")


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """An empty directory whose path leaves room for a socket name."""
    with TemporaryDirectory(prefix="ccm-") as directory:
        yield Path(directory)
