"""How Hypothesis works here, and the processes that the process test shares with `tests/proc`."""

from hypothesis import HealthCheck, settings

from tests.proc.conftest import api, cloud, cluster, where

__all__ = ["api", "cloud", "cluster", "where"]

# No time limits: on a shared machine they measure the neighbours.
settings.register_profile(
    "route",
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("route")
