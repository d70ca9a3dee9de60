"""Cloud credentials are exchanged while nodes join: nobody restarts, and nobody waits long."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ccm.sandbox.cloud.client import CloudAdmin
from tests.support.environment import Environment
from tests.support.running import Supervisor

pytestmark = pytest.mark.real

BURSTS, BURST_SIZE, ROTATIONS = 12, 5, 3


async def test_rotated_credentials_are_taken_up_without_a_restart(env: Environment) -> None:
    token, config = env.directory / "token", env.directory / "rotating.conf"
    config.write_text(f"[Global]\nurl = {env.cloud.url}\ntoken-file = {token}\nread-rate = 200\n")
    await rotate(env.admin, token, "token-0")
    with Supervisor(replace(env.where, cloud_config=config), "--node-workers=2") as supervisor:
        supervisor.wait_running()
        for burst in range(BURSTS):
            if burst % (BURSTS // ROTATIONS) == 2:
                await rotate(env.admin, token, f"token-{burst}")
            await env.add_nodes(BURST_SIZE, first=1 + burst * BURST_SIZE)
            await asyncio.sleep(0.1)  # nodes come one after the other, as they do
        await env.nodes.until_initialized(BURSTS * BURST_SIZE)
        workers = supervisor.workers()
    rows = (await env.admin.counters())["rows"]
    refused = sum(row["count"] for row in rows if row["status"] == 401)
    assert refused <= 2 * ROTATIONS * len(workers), rows
    assert {worker["restarts"] for worker in workers.values()} == {0}


async def rotate(admin: CloudAdmin, token: Path, text: str) -> None:
    """Have the cloud take only the new token, and put it where the old one was, in one step."""
    await admin.set_token(text)
    beside = token.with_name("token.new")
    beside.write_text(text)
    beside.replace(token)
