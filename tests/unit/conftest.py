"""A directory that a socket fits in."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """An empty directory whose path leaves room for a socket name."""
    with TemporaryDirectory(prefix="ccm-") as directory:
        yield Path(directory)
