"""What all tests share: the real API server's fixtures, and which tests run one after the other."""

from pathlib import Path

import pytest

pytest_plugins = ["tests.kube.fixtures"]

ALONE = {"life", "proc", "rbac", "systemd"}
"""Folders whose tests start many processes and measure time: one test of each at a time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        is_ours = item.path.is_relative_to(here)  # the conformance kit's tests are not
        folder = item.path.relative_to(here).parts[0] if is_ours else ""
        if folder in ALONE:
            item.add_marker(pytest.mark.xdist_group(folder))
