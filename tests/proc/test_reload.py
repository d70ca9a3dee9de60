"""What a reload reads anew: the cloud's configuration, and the verbosity in the file of flags."""

import asyncio

import pytest

from ccm.kube.client import Kube
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.running import Cloud, Supervisor, Where, tell, until

pytestmark = pytest.mark.real


async def test_the_verbosity_follows_the_file_without_a_restart(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    file = where.directory / "flags.yaml"
    file.write_text("v: 0\nnode-workers: 1\n")
    with Supervisor(where, f"--config={file}") as supervisor:
        before = await asyncio.to_thread(supervisor.wait_running)
        file.write_text("v: 4\nnode-workers: 9\n")
        told = await tell(supervisor, command="reload")
        assert told.endswith("; the verbosity is 4, other flags need a restart")

        def is_replaced() -> bool:
            workers = supervisor.workers()
            assert workers.keys() == before.keys()
            return workers["node-0"]["pid"] not in (None, before["node-0"]["pid"])

        await until("a successor works", is_replaced)
        assert " decided " not in supervisor.log.read_text()
        await add_machines_and_nodes(api, cloud.url, 1)
        await witness.until_initialised(1, 30)
        await until("it logs decisions", lambda: " decided " in supervisor.log.read_text())
        file.write_text("v: much\n")
        assert "flags are wrong by now" in await tell(supervisor, command="reload")
        assert supervisor.end() == 0
