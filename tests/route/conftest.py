"""How Hypothesis works here."""

from hypothesis import HealthCheck, settings

# No time limits: on a shared machine they measure the neighbours.
settings.register_profile(
    "route",
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("route")
