"""The process that workers are forked from: nothing depends on it but how fast they start."""

import pytest

from tests.support.cluster_nodes import kill
from tests.support.environment import Environment
from tests.support.installed import install
from tests.support.running import Supervisor, children_of, is_alive, until

pytestmark = pytest.mark.real

WITH_A_THREAD = """
import threading
from ccm.providers.simulated.provider import SimulatedCloud
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def others(supervisor: Supervisor) -> set[int]:
    """The supervisor's children that are no workers: the template, and one that keeps accounts."""
    return children_of(supervisor.process.pid) - {*supervisor.pids().values()}


async def test_the_end_of_the_template_ends_no_worker(env: Environment) -> None:
    await env.add_nodes(5)
    with env.supervisor() as supervisor:
        await env.nodes.until_initialized(5)
        workers = supervisor.pids()
        assert {*workers.values()} <= children_of(supervisor.process.pid)
        for pid in others(supervisor):
            kill(pid)
        assert supervisor.pids() == workers
        for _ in range(2):  # the first without a template, the next perhaps with another
            before = supervisor.pids()["node-0"]
            kill(before)
            await until("it runs again", lambda: supervisor.is_replaced("node-0", before))  # noqa: B023
        await env.add_nodes(5, first=6)
        await env.nodes.until_initialized(10)
        mine = children_of(supervisor.process.pid)
        assert supervisor.end() == 0
    await until("all have ended", lambda: not any(map(is_alive, mine)))


async def test_workers_of_a_provider_whose_import_starts_a_thread_are_not_forked(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = env.directory / "site"
    install(site, monkeypatch, provider="threads = threads:SimulatedCloud", threads=WITH_A_THREAD)
    await env.add_nodes(5)
    with env.supervisor("--cloud-provider=threads") as supervisor:
        await env.nodes.until_initialized(5)
        assert supervisor.end() == 0
