"""What a reload reads anew: the cloud's configuration, and the verbosity in the file of flags."""

import signal

import pytest

from tests.proc.environment import Environment
from tests.proc.running import command, until

pytestmark = pytest.mark.real


async def test_new_cloud_credentials_that_do_not_work_leave_the_old_ones_in_use(
    env: Environment,
) -> None:
    with env.supervisor() as supervisor:
        old = supervisor.wait_running()["node-0"]["pid"]
        good = env.cloud.config.read_text()
        env.cloud.config.write_text("[Global]\nulr = nonsense\n")
        supervisor.process.send_signal(signal.SIGHUP)
        await until("it says why", lambda: supervisor.workers()["node-0"]["faults"])
        assert "ulr" in str(supervisor.workers()["node-0"]["faults"])
        assert supervisor.pids()["node-0"] == old
        await env.add_nodes(10)
        await env.nodes.until_initialized(10, 30)
        env.cloud.config.write_text(good)
        supervisor.process.send_signal(signal.SIGHUP)
        await until("the new one works", lambda: supervisor.is_replaced("node-0", old))
        assert supervisor.workers()["node-0"]["faults"] == []
        assert supervisor.end() == 0


async def test_the_verbosity_follows_the_file_without_a_restart(env: Environment) -> None:
    file = env.directory / "flags.yaml"
    file.write_text("v: 0\nnode-workers: 1\n")
    with env.supervisor(f"--config={file}") as supervisor:
        before = supervisor.wait_running()
        file.write_text("v: 4\nnode-workers: 9\n")
        answer = await command(supervisor, "reload")
        assert answer.endswith("; the verbosity is 4, other flags need a restart")

        def is_replaced() -> bool:
            workers = supervisor.workers()
            assert workers.keys() == before.keys()
            return workers["node-0"]["pid"] not in (None, before["node-0"]["pid"])

        await until("a successor works", is_replaced)
        assert " decided " not in supervisor.log.read_text()
        await env.add_nodes(1)
        await env.nodes.until_initialized(1, 30)
        await until("it logs decisions", lambda: " decided " in supervisor.log.read_text())
        file.write_text("v: much\n")
        assert "flags are wrong by now" in await command(supervisor, "reload")
        assert supervisor.end() == 0
