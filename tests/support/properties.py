"""How many examples property tests try: few at a desk, more in CI, many in a long run.

`HYPOTHESIS_PROFILE` chooses; by default `long` with CCM_LONG, `ci` with CI, else `desk`.
"""

import os

from hypothesis import HealthCheck, settings

from tests.support.running import IS_LONG

FACTORS = {"desk": 0.1, "ci": 0.5, "long": 5.0}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or (
    "long" if IS_LONG else "ci" if os.environ.get("CI") else "desk"
)
USUAL = 100
FEWEST = 5


def examples(count: int, stateful_step_count: int = 50) -> settings:
    """`settings` with a share of so many examples, as the profile says."""
    share = max(FEWEST, round(count * FACTORS[PROFILE]))
    return settings(max_examples=share, stateful_step_count=stateful_step_count)


def load_profile() -> None:
    """No time limits: on a shared machine they measure the neighbours."""
    usual = max(FEWEST, round(USUAL * FACTORS[PROFILE]))
    health = [HealthCheck.too_slow]
    settings.register_profile(
        PROFILE,
        max_examples=usual,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=health,
    )
    settings.load_profile(PROFILE)
