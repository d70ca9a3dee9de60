"""What tests need of their host."""

import os
from typing import TypeVar

import pytest

T = TypeVar("T")

NOT_RUN = "NOT RUN: "


def needed(found: T | None, missing: str) -> T:
    """What was found; without it a skip on a laptop and a failure in CI."""
    if not found and os.environ.get("CI"):
        pytest.fail(missing)
    if not found:
        pytest.skip(NOT_RUN + missing)
    return found
