"""Pytest fixtures for tests that need a real OpenStack."""

import os
from collections.abc import Iterator

import pytest

from tests.labs.openstack.lab import MISSING, Lab, is_installed, is_running, running_lab
from tests.support.needed import needed
from tests.support.running import IS_LONG, WITH_LONG


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """With `CCM_LONG` one that is started if need be; without it only one that runs already."""
    if not IS_LONG and ("CI" in os.environ or not is_running()):
        pytest.skip(f"{WITH_LONG}, or start the lab: make lab-openstack")
    needed(is_installed(), MISSING)
    with running_lab() as lab:
        yield lab
