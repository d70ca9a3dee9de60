"""What a reload reads again: the cloud's configuration, and the verbosity in the file of flags."""

import asyncio
import signal
from functools import partial

import pytest

from ccm.bus.control import ask
from tests.support import deadlines
from tests.support.cluster_nodes import kill
from tests.support.environment import Environment
from tests.support.replicas import Election, Replica
from tests.support.running import Json, command, until

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
        await env.nodes.until_initialized(10)
        env.cloud.config.write_text(good)
        supervisor.process.send_signal(signal.SIGHUP)
        await until("the new one works", lambda: supervisor.is_replaced("node-0", old))
        assert supervisor.workers()["node-0"]["faults"] == []
        assert supervisor.end() == 0


async def test_a_reload_with_credentials_that_the_cloud_refuses_replaces_no_worker(
    env: Environment,
) -> None:
    """KC6: the command says why and fails; with ones that it takes all workers are replaced."""
    with env.supervisor() as supervisor:
        supervisor.wait_running()
        before, good = supervisor.pids(), env.cloud.config.read_text()
        token = next(line for line in good.splitlines() if line.startswith("token"))
        env.cloud.config.write_text(good.replace(token, "token = refused-by-the-cloud"))
        request = {"command": "reload"}
        answer = await asyncio.to_thread(ask, supervisor.control, request, deadlines.timeout(75))
        assert "go on with what they have" in answer["error"]
        assert "401" in answer["error"]
        assert "correct [Global] token" in answer["error"]
        assert "refused-by-the-cloud" not in answer["error"]
        assert supervisor.pids() == before
        await env.add_nodes(3)
        await env.nodes.until_initialized(3)
        env.cloud.config.write_text(good)
        await command(supervisor, "reload")
        for name, pid in before.items():
            if pid is not None:
                await until(f"{name} is replaced", partial(supervisor.is_replaced, name, pid))
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
        await env.nodes.until_initialized(1)
        await until("it logs decisions", lambda: " decided " in supervisor.log.read_text())
        file.write_text("v: much\n")
        assert "flags are wrong by now" in await command(supervisor, "reload")
        assert supervisor.end() == 0


@pytest.mark.parametrize("which", ["leader", "standby"])
async def test_a_cloud_configuration_that_is_away_for_a_moment_ends_nothing(
    env: Environment, which: str
) -> None:
    election = Election(env, f"ccm-away-{which}")
    with Replica("a", election) as leader:
        leader.wait_running()
        with Replica("b", election) as standby:
            await until("b stands by", lambda: standby.is_in("standby"))
            replica = leader if which == "leader" else standby
            await lose_configuration_and_worker(env, replica)
            assert (leader.is_leading(), standby.is_leading()) == (True, False)
            await env.add_nodes(3)
            await env.nodes.until_initialized(3)
            assert (standby.end(), leader.end()) == (0, 0)


async def lose_configuration_and_worker(env: Environment, replica: Replica) -> None:
    """Kill its node worker while the file is away; return when all is as before."""

    def worker() -> Json:
        return replica.workers().get("node-0", {})

    state, old = worker()["state"], worker()["pid"]
    away = env.cloud.config.rename(env.cloud.config.with_suffix(".away"))
    kill(old)
    faults = await until("it says why", lambda: worker().get("faults"))
    assert "cannot be read" in str(faults)
    away.rename(env.cloud.config)

    def is_back() -> bool:
        now = worker()
        return now.get("state") == state and now["pid"] != old and not now["faults"]

    began = asyncio.get_running_loop().time()
    await until("it is back", is_back)
    print(f"back {asyncio.get_running_loop().time() - began:.1f} s after the file")
