"""An API server of many Nodes, in one process: the sandbox's, full of initialised Nodes.

An etcd with 100,000 Nodes of 10 kB leaves nothing of a small machine to what is measured. This one
answers over real HTTP all the same, and writes the same audit log as the real API server:
`python -m bench.standin --cloud URL --audit-log FILE --kubeconfig FILE`.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from uuid import NAMESPACE_DNS, uuid5

import click
import orjson
from aiohttp import web

from bench.nodes import kubelets_node
from ccm.model.cloud import Instance
from ccm.model.objects import Json, Node, format_time
from ccm.providers.simulated.instances import read_machine
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.kubernetes.kinds import NODE
from ccm.sandbox.kubernetes.patch import STRATEGIC_MERGE_PATCH, parse_patch
from ccm.sandbox.kubernetes.request import ApiRequest
from ccm.sandbox.kubernetes.server import SandboxServer
from ccm.sandbox.serving import serve
from tests.support.kube.audit import AuditEntry, read_audit_log
from tests.support.running import Running, wait_for
from workers.node.plan import patch_for, plan

ANY_VERSION = 1
FILLING = 1800.0  # seconds


class FilledServer(SandboxServer):
    """A sandbox's API server whose audit log is the real one's."""

    def __init__(self, audit_log: Path) -> None:
        super().__init__()
        self._audit_log = audit_log.open("wb", buffering=0)

    async def answer(self, request: ApiRequest) -> web.StreamResponse:
        received = datetime.now(UTC)
        response = await super().answer(request)
        self._audit_log.write(_audit_line(request, response.status, received))
        return response

    def fill(self, nodes: Iterable[Json]) -> None:
        """Store Nodes as they are; they share what is the same in all."""
        images: list[Json] = []
        for node in nodes:
            images = images or node["status"]["images"]
            node["status"]["images"] = images
            self.storage.write(NODE, node["metadata"]["name"], node)
        self.compact()


class StandIn(Running):
    """The process, as far as a bench asks it for what a real cluster has."""

    def __init__(self, directory: Path, cloud_url: str) -> None:
        directory.mkdir()
        self._audit_log = directory / "audit.log"
        self._kubeconfig = directory / "kubeconfig"
        self._audited = 0
        places = (f"--audit-log={self._audit_log}", f"--kubeconfig={self._kubeconfig}")
        super().__init__("stand-in", directory, ["bench.standin", f"--cloud={cloud_url}", *places])

    def __enter__(self) -> Self:
        wait_for("the stand-in is full", self._is_full, FILLING)
        return self

    def _is_full(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the stand-in ended: {self.tail()}")
        return self._kubeconfig.exists()

    @property
    def pids(self) -> Mapping[str, int]:
        return {"stand-in": self.process.pid}

    def kubeconfig(self, _identity: str) -> Path:
        """Everybody may do everything here."""
        return self._kubeconfig

    def audit(self) -> Iterator[AuditEntry]:
        return read_audit_log(self._audit_log, self._audited)

    def forget_audit(self) -> None:
        """Let `audit` begin here."""
        self._audited = self._audit_log.stat().st_size


async def initialised(cloud: CloudAdmin) -> list[Json]:
    """The Nodes of all machines, as kubelets and our node worker leave them."""
    machines = (await cloud.state())["machines"]
    return [_initialised(record) for record in machines]


def _initialised(record: Json) -> Json:
    instance = read_machine(record)
    assert isinstance(instance, Instance)
    node = kubelets_node(record["name"])
    node["metadata"] |= {
        "uid": str(uuid5(NAMESPACE_DNS, record["name"])),
        "creationTimestamp": format_time(datetime.now(UTC)),
        "resourceVersion": str(ANY_VERSION),
    }
    for action in plan(Node(node), instance):
        write = patch_for(Node(node), action, ANY_VERSION)
        apply = parse_patch(NODE, STRATEGIC_MERGE_PATCH, orjson.dumps(write.merge))
        node = apply(node)
    return node


def _audit_line(request: ApiRequest, code: int, received: datetime) -> bytes:
    info = request.info
    about = {
        "apiGroup": info.kind.group,
        "resource": info.kind.plural,
        "subresource": info.subresource,
        "namespace": info.namespace,
        # As the real server logs it, which takes the name of what is created from the body.
        "name": info.name or _created(request),
    } if info else {}  # fmt: skip
    entry = {
        "verb": request.verb,
        "userAgent": request.http.headers.get("User-Agent", ""),
        "requestURI": request.http.raw_path,
        "objectRef": about,
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": received.isoformat(),
        "stageTimestamp": datetime.now(UTC).isoformat(),
    }
    return orjson.dumps(entry) + b"\n"


def _created(request: ApiRequest) -> str:
    is_creation = request.verb == "create" and request.body
    return str(request.document()["metadata"].get("name", "")) if is_creation else ""


@click.command()
@click.option("--cloud", required=True, help="The simulated cloud, which has the machines.")
@click.option("--audit-log", type=click.Path(path_type=Path), required=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Written once it is full.")
def main(cloud: str, audit_log: Path, kubeconfig: Path) -> None:
    """Serve a Node for each machine until SIGTERM."""

    async def run() -> None:
        server = FilledServer(audit_log)
        async with CloudAdmin(cloud, timeout=600.0) as admin:
            server.fill(await initialised(admin))
        await serve(server, None, lambda: server.kubeconfig(kubeconfig))

    asyncio.run(run())


if __name__ == "__main__":
    main()
