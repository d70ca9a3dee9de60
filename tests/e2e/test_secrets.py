"""A canary in every secret: nothing that the product says or leaves behind sings."""

import asyncio
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from ccm.bus.control import ask
from ccm.kube.watch import list_once
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.e2e.test_explain import explain
from tests.support.deadlines import timeout
from tests.support.environment import Environment
from tests.support.kube.ports import ReservedPort
from tests.support.pki import trusting_anybody
from tests.support.running import ALL_CONTROLLERS, Supervisor, until

pytestmark = pytest.mark.real

CANARY = "canary-5d1f-of-the-cloud"
WEB_TOKEN = re.compile(r"eyJ[\w-]{10,}\.[\w-]{10,}\.")  # of a service account, too
NO_CORE_DUMP = re.compile(r"^Max core file size +0 +0 ", re.MULTILINE)
PAGES = ("configz", "flagz", "statusz", "metrics", "healthz?verbose", "readyz?verbose", "")
KINDS = ("nodes", "services", "events", "persistentvolumes", "configmaps")
FAULTS = ("denied", "error", "garbage", "reset", "throttle")


async def test_no_secret_is_ever_reported(env: Environment) -> None:
    config = env.directory / "canary.conf"
    config.write_text(f"[Global]\nurl = {env.cloud.url}\ntoken = {CANARY}\nread-rate = 200\n")
    reserved = ReservedPort()
    flags = (
        *ALL_CONTROLLERS,
        "--bind-address=127.0.0.1",
        f"--secure-port={reserved.number}",
        "--permit-port-sharing",
        "--authorization-always-allow-paths=/*",
        "--v=10",
        "--logging-format=json",
    )
    await env.admin.set_token(CANARY)
    with Supervisor(replace(env.where, cloud_config=config), *flags) as supervisor:
        await until("no process dumps core", lambda: dump_no_core(supervisor))
        reply = await provoke_output(env, supervisor)
        texts = {"reload": reply, **dict(await outputs(env, supervisor, reserved.number))}
    files = [file for file in env.directory.rglob("*") if file != config]
    texts |= {str(file): read(file) for file in files}
    reserved.release()
    for source, text in texts.items():
        for secret in (CANARY, env.cluster.token("ccm")):
            assert secret not in text, source
        if source != str(env.where.kubeconfig):
            assert not WEB_TOKEN.search(text), source
    assert "Current thread" in texts[str(supervisor.log)]  # the stacks of a hanging worker


async def provoke_output(env: Environment, supervisor: Supervisor) -> str:
    """Everything that makes a process log: work, refusals, nonsense, hanging and dying.

    Returns what the reload with refused credentials answers.
    """
    await env.add_services(0)
    for kind in FAULTS:
        await env.admin.set_fault(CloudFault(CloudFaultKind(kind), "*", 2))
    await env.add_nodes(3)
    await env.nodes.until_initialized(3)
    pid = supervisor.pids()["service"]
    os.kill(pid, signal.SIGABRT)
    await until("it is replaced", lambda: supervisor.pids()["service"] not in (pid, None))
    await env.admin.set_token("another")  # from now on, every call is refused
    reply = await asyncio.to_thread(ask, supervisor.control, {"command": "reload"}, timeout())
    assert "401" in reply["error"]
    await env.add_nodes(1, first=9)
    await until("it is refused", lambda: "401" in orjson.dumps(supervisor.status()).decode())
    return str(reply)


async def outputs(env: Environment, supervisor: Supervisor, port: int) -> list[tuple[str, str]]:
    """What can be read of a running supervisor, by its source."""
    found = [("status", orjson.dumps(supervisor.status()).decode())]
    found.append(("explain", await asyncio.to_thread(explain, supervisor, "node", "vm-9")))
    for page in PAGES:
        url = f"https://127.0.0.1:{port}/{page}"
        found.append((f"/{page}", await asyncio.to_thread(fetch, url)))
    lists = {kind: await list_once(env.api, f"/api/v1/{kind}") for kind in KINDS}
    found += [(kind, orjson.dumps(items).decode()) for kind, items in lists.items()]
    return [*found, *of_processes(supervisor)]


def of_processes(supervisor: Supervisor) -> Iterator[tuple[str, str]]:
    """What everybody on the host may see of them."""
    for pid in pids(supervisor):
        for name in ("cmdline", "environ"):
            yield f"{name} of {pid}", read(Path(f"/proc/{pid}/{name}"))


def pids(supervisor: Supervisor) -> list[int]:
    """Of the supervisor and its workers."""
    return [supervisor.process.pid, *filter(None, supervisor.pids().values())]


def dump_no_core(supervisor: Supervisor) -> bool:
    limits = [read(Path(f"/proc/{pid}/limits")) for pid in pids(supervisor)]
    return len(limits) > 4 and all(map(NO_CORE_DUMP.search, limits))


def read(file: Path) -> str:
    """Empty for what is no file, or of a process that has just ended."""
    try:
        return file.read_bytes().decode(errors="replace") if file.is_file() else ""
    except ProcessLookupError:
        return ""


def fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, context=trusting_anybody(), timeout=timeout()) as answer:
            text: str = answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.read().decode()
    return text
