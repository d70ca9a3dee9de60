"""`ccm-supervisor explain`: people learn why an object is as it is, without reading logs."""

import asyncio
import os
import signal

import pytest
from click.testing import CliRunner

from ccm.cli.main import main
from ccm.kube.client import Kube
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.kubelets import follow_power, register
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.running import Cloud, Supervisor, Where
from tests.proc.workload import ALL, service

pytestmark = pytest.mark.real

SERVICES = "/api/v1/namespaces/default/services"


def explain(supervisor: Supervisor, *words: str) -> str:
    command = ["explain", f"--runtime-dir={supervisor.runtime}", *words]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


async def until_explained(supervisor: Supervisor, words: tuple[str, ...], *parts: str) -> None:
    """Until the explanation has all these parts."""
    said = ""
    try:
        async with asyncio.timeout(30):
            while not all(part in said for part in parts):
                said = await asyncio.to_thread(explain, supervisor, *words)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{parts} not all in {said}") from None


async def test_each_object_is_explained_by_those_who_look_after_it(
    where: Where, cloud: Cloud, api: Kube, witness: Witness
) -> None:
    flags = (*ALL, "--node-deletion-limit=0", "--node-monitor-period=500ms")
    with Supervisor(where, *flags) as supervisor:
        async with CloudAdmin(cloud.url) as admin:
            await add_machines_and_nodes(api, cloud.url, 2)
            await register(api, ["vm-77"])
            await api.post(SERVICES, service(0))
            await witness.until_initialised(2, 60)
            await until_explained(
                supervisor,
                ("node", "vm-1"),
                "node-0 (running): initialised",
                "uninitialized taint: gone",
                "route (running): routed",
                "routes to it: 10.244.1.0/24",
            )
            await until_explained(
                supervisor,
                ("node", "vm-77"),
                "the cloud knows no such machine",
                "failures in a row",
                "uninitialized taint: there",
            )
            await until_explained(
                supervisor, ("service", "web-0"), "current hosts: vm-1, vm-2", "compared "
            )
            await until_explained(
                supervisor, ("service", "kube-system/none"), "service: there is none"
            )
            await admin.terminate("vm-2")
            await follow_power(api, admin, ["vm-1", "vm-2"])
            await until_explained(
                supervisor,
                ("node", "vm-2"),
                "cloud: the machine is gone",
                "not yet (budget",
                "raise the limit",
            )
            pid = int(str(supervisor.workers()["service"]["pid"]))
            os.kill(pid, signal.SIGSTOP)
            try:
                await until_explained(supervisor, ("service", "web-0"), "did not answer within 2 s")
            finally:
                os.kill(pid, signal.SIGCONT)
            await api.request("DELETE", f"{SERVICES}/web-0")
            await until_explained(supervisor, ("service", "web-0"), "service: there is none")
