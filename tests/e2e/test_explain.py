"""`ccm-supervisor explain`: people learn why an object is as it is, without reading logs."""

import asyncio
import os
import signal

import pytest
from click.testing import CliRunner

from ccm.cli.main import main
from ccm.sandbox.kubelets import follow_power, register
from tests.support.environment import SERVICES, Environment
from tests.support.running import ALL_CONTROLLERS, Supervisor, until_none

pytestmark = pytest.mark.real


def explain(supervisor: Supervisor, kind: str, name: str) -> str:
    command = ["explain", f"--runtime-dir={supervisor.runtime}", kind, name]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == (UNKNOWN in done.stderr), done.stderr
    assert done.exit_code or ABSENT not in done.stdout
    return done.output


ABSENT = "service: not found"
ONLY_UNKNOWN = "^ccm-supervisor: no worker here knows a service 'kube-system/none'$"
UNKNOWN = "no worker here knows"  # also while all that could are silent
EXPLANATIONS = {
    ("node", "vm-1"): (
        "node-0 (running): initialized",
        "uninitialized taint: removed",
        "route (running): routed",
        "routes to it: 10.244.1.0/24",
    ),
    ("node", "vm-77"): (
        "the cloud knows no such machine",
        "failures in a row",
        "uninitialized taint: present",
    ),
    ("service", "web-0"): ("current backends: vm-1, vm-2", "compared ", "address: 100.64."),
    ("service", "kube-system/none"): (ONLY_UNKNOWN,),
}


async def until_explained(supervisor: Supervisor, kind: str, name: str, *parts: str) -> None:
    """Until the explanation has all these parts."""

    async def missing() -> list[str]:
        text = await asyncio.to_thread(explain, supervisor, kind, name)
        lacking = [part for part in parts if part not in f"^{text.rstrip()}$"]
        return [*lacking, f"but {text}"] if lacking else []

    await until_none("missing", missing)


async def test_each_object_is_explained_by_those_who_look_after_it(env: Environment) -> None:
    quick = ("--node-monitor-period=500ms", "--node-deletion-confirmation-period=0")
    flags = (*ALL_CONTROLLERS, "--node-deletion-limit=0", *quick)
    with env.supervisor(*flags) as supervisor:
        await env.add_nodes(2)
        await register(env.api, ["vm-77"])
        await env.add_services(0)
        await env.nodes.until_initialized(2)
        for (kind, name), parts in EXPLANATIONS.items():
            await until_explained(supervisor, kind, name, *parts)
        await env.admin.terminate("vm-2")
        await follow_power(env.api, env.admin, ["vm-1", "vm-2"])
        held = ("cloud: the machine is gone", "not yet (budget", "raise the limit")
        await until_explained(supervisor, "node", "vm-2", *held)
        pid = supervisor.pids()["service"]
        os.kill(pid, signal.SIGSTOP)
        try:
            await until_explained(supervisor, "service", "web-0", "did not answer within 2 s")
        finally:
            os.kill(pid, signal.SIGCONT)
        await env.api.request("DELETE", f"{SERVICES}/web-0")
        await until_explained(supervisor, "service", "web-0", ABSENT)
