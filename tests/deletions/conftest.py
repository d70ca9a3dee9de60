"""How Hypothesis works here, and the site that most tests of deletions begin with."""

from pathlib import Path

import pytest
from hypothesis import settings

from .site import Site

# No time limit per example: on a shared machine it measures the neighbours.
settings.register_profile("deletions", deadline=None, database=None, print_blob=True)
settings.load_profile("deletions")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "deletions.json")
