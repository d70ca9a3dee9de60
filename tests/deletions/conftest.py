"""How Hypothesis works here, and the cluster that most tests of deletions begin with."""

from pathlib import Path

import pytest
from hypothesis import settings

from .cluster import Cluster

# No time limit per example: on a shared machine it measures the neighbours.
settings.register_profile("deletions", deadline=None, database=None, print_blob=True)
settings.load_profile("deletions")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "deletions.json")
