"""Cloud credentials are exchanged while nodes join: nobody restarts, and nobody waits long."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.sandbox.cloud.client import CloudAdmin
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.running import Cloud, Supervisor, Where

pytestmark = pytest.mark.real

BURSTS, IN_A_BURST, ROTATIONS = 12, 5, 3


async def test_rotated_credentials_are_taken_up_without_a_restart(
    tmp_path: Path, where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    token = tmp_path / "token"
    token.write_text("token-0")
    config = tmp_path / "rotating.conf"
    config.write_text(f"[Global]\nurl = {cloud.url}\ntoken-file = {token}\nread-rate = 200\n")
    async with CloudAdmin(cloud.url) as admin:
        await admin.set_token("token-0")
        with Supervisor(replace(where, cloud_config=config), "--node-workers=2") as supervisor:
            await asyncio.to_thread(supervisor.wait_running)
            for burst in range(BURSTS):
                if burst % (BURSTS // ROTATIONS) == 2:
                    await rotate(admin, token, f"token-{burst}")
                await add_machines_and_nodes(
                    api, cloud.url, IN_A_BURST, first=1 + burst * IN_A_BURST
                )
                await asyncio.sleep(0.1)  # nodes come one after the other, as they do
            await witness.until_initialised(BURSTS * IN_A_BURST, 30)
            workers = supervisor.workers()
        rows = (await admin.counters())["rows"]
    refused = sum(row["count"] for row in rows if row["status"] == 401)
    assert 1 <= refused <= 2 * ROTATIONS * len(workers), rows
    assert {worker["restarts"] for worker in workers.values()} == {0}


async def rotate(admin: CloudAdmin, token: Path, text: str) -> None:
    """Put the new token where the old one was, in one step, and have the cloud take only that."""
    beside = token.with_name("token.new")
    beside.write_text(text)
    beside.replace(token)
    await admin.set_token(text)
