"""What all tests share: the real API server's fixtures, and which tests run one after the other."""

import gc
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from ccm import redaction
from tests.support import deadlines
from tests.support.needed import NOT_RUN
from tests.support.outcomes import LOG_SECTION
from tests.support.properties import load_profile
from tests.support.virtual_time import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]

load_profile()

pytest_plugins = [
    "tests.support.kube.fixtures",
    "tests.labs.openstack.fixtures",
    "tests.support.left_open",
]

TOGETHER = ("tests/integration/check", "tests/e2e/rbac", "tests/e2e/systemd", "tests/e2e/kubelets")
"""Folders of which one test at a time runs: they share a cluster, or a machine."""
BY_MODULE = {
    "tests/integration/https/test_real.py",
    "tests/integration/status_page/test_browser.py",
    "tests/peers/test_aws_peers.py",
    "tests/e2e/test_documents.py",
    "tests/e2e/test_informer.py",
    "tests/e2e/test_true_kubelets.py",
    "tests/docs/walks/test_walks.py",
    "tests/docs/faults/test_cures.py",
    "tests/unit/test_outcomes.py",
}
"""Modules whose tests share what takes long to start: one at a time, in one process."""
LAB_TESTS = "conformance instances lb_addresses_lab lb_lab lb_nodes_lab outages real routes"
LAB = {f"tests/providers/openstack/test_openstack_{name}.py" for name in LAB_TESTS.split()} | {
    "tests/peers/test_openstack_peers.py"
}
"""Modules whose tests share a real OpenStack: one at a time, in one process."""
INCUS_LAB = {
    f"tests/providers/incus/test_incus_{name}.py"
    for name in (
        "conformance",
        "instances",
        "balancers",
        "routes",
        "traffic",
        "kubelets",
        "members",
    )
}
"""The same of a real Incus."""
HANGS = 120.0  # seconds at rest in which no test that works is still running
LOG_LINES = 40


@pytest.fixture(autouse=True)
def known_secrets(monkeypatch: pytest.MonkeyPatch) -> redaction.KnownSecrets:
    """The secrets that this test registers, and no other one has registered."""
    mine = redaction.KnownSecrets()
    monkeypatch.setattr(redaction, "SECRETS", mine)
    return mine


SLOW = (
    "tests/e2e/test_budget.py",
    "tests/peers/test_aws_peers.py",
    "tests/e2e/systemd",
    "tests/e2e/kubelets",
    "tests/e2e/test_importance.py",
    "tests/e2e/test_offer.py",
    "tests/e2e/test_deletions.py",
    "tests/e2e/chaos",
    "tests/docs/walks/test_walks.py",
    "tests/providers/aws/test_aws_conformance.py",
    "tests/providers/gce/test_gce_conformance.py",
    "tests/integration/testkit/test_new_provider.py",
)
"""What begins first, in this order, so that it is not what all others have to wait for."""
FAST = ("tests/unit", "tests/integration/service", "tests/integration/deletions")
"""Folders that begin last, so that their many short tests fill the gaps at the end."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays, so that no search for garbage goes through it, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("alone") and not item.nodeid.startswith(deadlines.TIMED):
            raise pytest.UsageError(f"{item.nodeid}: move what measures time: {deadlines.TIMED}")
    items.sort(key=lambda item: _turn(item.nodeid))


def _turn(nodeid: str) -> int:
    """When a test begins: the slowest in their order, then all others but the fast ones."""
    is_slow = (number for number, start in enumerate(SLOW) if nodeid.startswith(start))
    return next(is_slow, len(SLOW) + nodeid.startswith(FAST))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "Groups | None":
    """For `--dist loadgroup`: xdist's own one runs all tests anywhere since pytest 9.2."""
    if config.getoption("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return Groups(config, log)


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Sends tests that have to run one after the other to the same process, in their order."""

    def _split_scope(self, nodeid: str) -> str:
        """What runs in one process: a folder, a module, or just this test."""
        module = nodeid.partition("::")[0]
        folder = module.rpartition("/")[0]
        if folder in TOGETHER:
            return folder
        if module in LAB:
            return "openstack"
        if module in INCUS_LAB:
            return "incus"
        return module if module in BY_MODULE else nodeid


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End a test that hangs: its limit is a guard against waiting for ever, not a measurement."""
    marker = item.get_closest_marker("timeout")
    seconds = marker.args[0] if marker else HANGS
    item.add_marker(pytest.mark.timeout(deadlines.timeout(seconds)), append=False)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows how the logs of the processes end that the test started."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and isinstance(folder, Path):
        for log in sorted(folder.rglob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            report.sections.append((f"{LOG_SECTION}{log.stem}", "\n".join(lines)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly how many tests did not run for want of what."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr[2]).partition(NOT_RUN)[2] for report in skipped]
    for missing, count in Counter(filter(None, reasons)).items():
        terminalreporter.write_line(f"{NOT_RUN}{count} tests; {missing}", red=True, bold=True)
