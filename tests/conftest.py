"""What all tests share: the real API server's fixtures, and which tests run one after the other."""

from pathlib import Path

import pytest

pytest_plugins = ["tests.kube.fixtures"]

ALONE = {"check", "life", "page", "rbac", "systemd"}
"""Folders of which one test at a time runs: they share a cluster, or fill the machine."""
BY_MODULE = {"https", "proc"}
"""Folders whose modules start a cluster of their own: one test of each module at a time."""
TIMED = {
    "test_budget",
    "test_children",
    "test_deletions",
    "test_feed",
    "test_fencing",
    "test_initialisation",
    "test_leadership",
}
"""Modules of `proc` that measure time: one test of all of them at a time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if group := _group(item.path):
            item.add_marker(pytest.mark.xdist_group(group))


def _group(file: Path) -> str:
    """What runs in one process of the test run; empty when it does not matter where."""
    here = Path(__file__).parent
    if not file.is_relative_to(here):  # the conformance kit's tests are not ours to place
        return ""
    folder, name = file.relative_to(here).parts[0], file.stem
    if folder in ALONE:
        return folder
    if folder == "proc" and name in TIMED:
        return "timed"
    return f"{folder}/{name}" if folder in BY_MODULE else ""
