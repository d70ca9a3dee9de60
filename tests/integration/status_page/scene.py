"""A supervisor at work on an embedded cluster and cloud in which several things are wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ccm.kube.client import Kube
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.kubelets import follow_power, register
from ccm.sandbox.kubernetes.server import SandboxServer
from ccm.sandbox.workload import SERVICE
from tests.integration.https.served import ServerAddress
from tests.support.cluster_nodes import add_machines_and_nodes, connect
from tests.support.kube.ports import ReservedPort
from tests.support.pki import Authority
from tests.support.running import Supervisor, Where, command, until

SERVICES = "/api/v1/namespaces/default/services"
NODES = 8
STUCK = "vm-77"  # its machine does not exist
GONE = "vm-2"  # its machine existed
REFUSED = "web-2"
MADE = ("web-0", "web-1")


@dataclass(frozen=True)
class Scene:
    """What the tests talk to."""

    supervisor: Supervisor
    place: ServerAddress

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.place.port}/"


@asynccontextmanager
async def played(directory: Path, why: str) -> AsyncIterator[Scene]:
    """All that is wrong is known when it begins; for `why` a person froze deletions."""
    kubeconfig, config = directory / "kubeconfig", directory / "cloud.conf"
    clients, port = directory / "clients.crt", ReservedPort()
    clients.write_bytes(Authority("clients").pem)
    flags = (
        "--bind-address=127.0.0.1",
        f"--secure-port={port.number}",
        "--permit-port-sharing",
        f"--client-ca-file={clients}",  # so that the browser is asked for a certificate
        "--controllers=*",
        "--cluster-cidr=10.240.0.0/12",
        "--node-monitor-period=1s",
        "--node-deletion-confirmation-period=0",
    )
    async with SandboxServer() as kubernetes, CloudServer() as cloud:
        kubernetes.kubeconfig(kubeconfig)
        config.write_text(f"[Global]\nurl = {cloud.url}\ntoken = {cloud.token}\n")
        kube = await connect(kubeconfig)
        where = Where(directory, kubeconfig, config)
        supervisor = await asyncio.to_thread(Supervisor, where, *flags)
        try:
            await _go_wrong(kube, cloud, supervisor, why)
            await until("all of it is told", lambda: _is_reported(supervisor))
            yield Scene(supervisor, ServerAddress(port.number))
        finally:
            await asyncio.to_thread(supervisor.end)  # while this loop still serves it
            port.release()
            await kube.close()


async def _go_wrong(kube: Kube, cloud: CloudServer, supervisor: Supervisor, why: str) -> None:
    await add_machines_and_nodes(kube, cloud.url, NODES)
    await register(kube, [STUCK])
    for name in (*MADE, REFUSED):
        affinity = {"sessionAffinity": "ClientIP" if name == REFUSED else "None"}
        meta, spec = SERVICE["metadata"] | {"name": name}, SERVICE["spec"] | affinity
        await kube.post(SERVICES, SERVICE | {"metadata": meta, "spec": spec})
    await until("all machines are known", lambda: _initialized(supervisor) == NODES)
    await command(supervisor, "deletions", action="freeze", reason=why, by="alice")
    async with CloudAdmin(cloud.url) as admin:
        await admin.vanish(GONE)
        await follow_power(kube, admin, [f"vm-{number}" for number in range(1, NODES + 1)])


def _initialized(supervisor: Supervisor) -> int:
    return sum(worker.get("initialized", 0) for worker in supervisor.workers().values())


def _is_reported(supervisor: Supervisor) -> bool:
    workers, candidates = supervisor.workers(), supervisor.status()["deletions"]["candidates"]
    pending = {key for worker in workers.values() for key in worker.get("reasons", {})}
    entries = workers["service"].get("services", [])
    made = {entry["service"] for entry in entries if entry["addresses"]}
    return (
        {STUCK, f"default/{REFUSED}"} <= pending
        and [item["node"] for item in candidates] == [GONE]
        and made == {f"default/{name}" for name in MADE}
    )
