"""The processes that the process test shares with `tests/proc`."""

from tests.proc.conftest import api, cloud, cluster, where

__all__ = ["api", "cloud", "cluster", "where"]
