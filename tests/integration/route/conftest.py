"""The processes that the process test shares with `tests/e2e`."""

from tests.e2e.conftest import api, cloud, cluster, where

__all__ = ["api", "cloud", "cluster", "where"]
