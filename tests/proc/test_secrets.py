"""A canary in every secret: nothing that the product says or leaves behind sings."""

import asyncio
import os
import re
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from ccm.kube.client import Kube
from ccm.kube.watch import list_once
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.faults import CloudFault
from tests.kube.cluster import RealCluster
from tests.kube.ports import ReservedPort
from tests.proc.cluster_nodes import Witness, add_machines_and_nodes
from tests.proc.running import Cloud, Supervisor, Where, tell, until
from tests.proc.test_explain import explain
from tests.proc.workload import ALL, service

pytestmark = pytest.mark.real

CANARY = "canary-5d1f-of-the-cloud"
WEB_TOKEN = re.compile(r"eyJ[\w-]{10,}\.[\w-]{10,}\.")  # of a service account, too
PAGES = ("configz", "flagz", "statusz", "metrics", "healthz?verbose", "readyz?verbose", "")
KINDS = ("nodes", "services", "events", "persistentvolumes", "configmaps")


async def test_no_secret_is_ever_told(
    tmp_path: Path, where: Where, cloud: Cloud, api: Kube, witness: Witness, cluster: RealCluster
) -> None:
    config = tmp_path / "canary.conf"
    config.write_text(f"[Global]\nurl = {cloud.url}\ntoken = {CANARY}\nread-rate = 200\n")
    reserved = ReservedPort()
    serving = (
        "--bind-address=127.0.0.1",
        f"--secure-port={reserved.number}",
        "--permit-port-sharing",
        "--authorization-always-allow-paths=/*",
    )
    where = replace(where, cloud_config=config)
    async with CloudAdmin(cloud.url) as admin:
        await admin.set_token(CANARY)
        with Supervisor(where, *ALL, *serving, "--v=10", "--logging-format=json") as supervisor:
            await live_badly(supervisor, api, admin, cloud, witness)
            said = dict(await everything(supervisor, api, reserved.number))
    said |= {str(file): read(file) for file in tmp_path.rglob("*") if file not in {config}}
    reserved.release()
    secrets = (CANARY, cluster.token("ccm"))
    for where_said, text in said.items():
        for secret in secrets:
            assert secret not in text, where_said
        if where_said != str(where.kubeconfig):
            assert not WEB_TOKEN.search(text), where_said
    assert "Current thread" in said[str(supervisor.log)]  # the stacks of a hanging worker


async def live_badly(
    supervisor: Supervisor, api: Kube, admin: CloudAdmin, cloud: Cloud, witness: Witness
) -> None:
    """Everything that makes a process talk: work, refusals, nonsense, hanging and dying."""
    await api.post("/api/v1/namespaces/default/services", service(0))
    for kind in ("denied", "error", "garbage", "reset", "throttle"):
        await admin.set_fault(
            CloudFault.from_json({"kind": kind, "operation": "*", "remaining": 2})
        )
    await add_machines_and_nodes(api, cloud.url, 3)
    await witness.until_initialised(3, 60)
    pid = int(str(supervisor.workers()["service"]["pid"]))
    os.kill(pid, signal.SIGABRT)
    await until("it is replaced", lambda: supervisor.workers()["service"]["pid"] not in (pid, None))
    await admin.set_token("another")  # from now on, every call is refused
    await tell(supervisor, command="reload")
    await add_machines_and_nodes(api, cloud.url, 1, first=9)
    await until("it is refused", lambda: "401" in orjson.dumps(supervisor.status()).decode())


async def everything(supervisor: Supervisor, api: Kube, port: int) -> list[tuple[str, str]]:
    """What can be read of a running supervisor, by where it stands."""
    told = [("status", orjson.dumps(supervisor.status()).decode())]
    told += [("explain", await asyncio.to_thread(explain, supervisor, "node", "vm-9"))]
    for page in PAGES:
        told.append(
            (f"/{page}", await asyncio.to_thread(fetch, f"https://127.0.0.1:{port}/{page}"))
        )
    for kind in KINDS:
        told.append((kind, orjson.dumps(await list_once(api, f"/api/v1/{kind}")).decode()))
    return [*told, *of_processes(supervisor)]


def of_processes(supervisor: Supervisor) -> Iterator[tuple[str, str]]:
    """What everybody on the host may see of them."""
    pids = [worker["pid"] for worker in supervisor.workers().values() if worker["pid"]]
    for pid in (supervisor.process.pid, *pids):
        for name in ("cmdline", "environ"):
            yield f"{name} of {pid}", read(Path(f"/proc/{pid}/{name}"))


def read(file: Path) -> str:
    return file.read_bytes().decode(errors="replace") if file.is_file() else ""


def fetch(url: str) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, context=context, timeout=20) as answer:
            text: str = answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.read().decode()
    return text
