"""A healthy cluster with a supervisor at work, and `check` run against it in this process."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from click.testing import CliRunner

from ccm.cli.main import main
from ccm.manifests.rbac import rule_body, subjects
from ccm.model.rbac import PolicyRule
from ccm.sandbox import workload
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.faults import CloudFault
from ccm.settings import Settings
from tests.support.cluster_nodes import add_machines_and_nodes, connect
from tests.support.deadlines import within
from tests.support.kube.cluster import RealCluster
from tests.support.running import Cloud, Json, Supervisor, Where, wait_for

T = TypeVar("T")

CLUSTER_CIDR = "10.244.0.0/14"
FLAGS = ("--controllers=*", f"--cluster-cidr={CLUSTER_CIDR}", "--secure-port=0")
NODES = ("vm-1", "vm-2", "vm-3")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a run said."""

    exit_code: int
    body: Json

    @property
    def states(self) -> dict[str, str]:
        return {check["name"]: check["state"] for check in self.body["checks"]}

    def of(self, *states: str) -> set[str]:
        """The checks in one of these states."""
        return {name for name, state in self.states.items() if state in states}

    def findings(self, name: str) -> list[Json]:
        [findings] = [c["findings"] for c in self.body["checks"] if c["name"] == name]
        return list(findings)


@dataclass(frozen=True, slots=True)
class CheckWorld:
    """The healthy cluster; whoever changes it puts it back."""

    cluster: RealCluster
    cloud: Cloud
    where: Where
    supervisor: Supervisor

    def flags(self, identity: str = "ccm") -> tuple[str, ...]:
        """Those of the supervisor at work, with another identity if need be."""
        return (
            "--cloud-provider=simulated",
            f"--cloud-config={self.where.cloud_config}",
            f"--kubeconfig={self.cluster.kubeconfig(identity)}",
            f"--runtime-dir={self.supervisor.runtime}",
            *FLAGS,
        )

    def check(self, *changes: str, identity: str = "ccm") -> CheckReport:
        """`check` with those flags; of two that are the same, the later one counts."""
        words = ["check", "-o", "json", *self.flags(identity), *changes]
        done = CliRunner().invoke(main, words)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return CheckReport(done.exit_code, json.loads(done.stdout))

    def tell_cloud(self, what: Callable[[CloudAdmin], Awaitable[T]]) -> T:
        async def tell() -> T:
            async with CloudAdmin(self.cloud.url) as admin:
                return await what(admin)

        return asyncio.run(tell())

    @contextmanager
    def cloud_fault(self, fault: CloudFault) -> Iterator[None]:
        """A fault that the cloud has for a while."""
        self.tell_cloud(lambda admin: admin.set_fault(fault))
        try:
            yield
        finally:
            self.tell_cloud(lambda admin: admin.clear_faults())

    @contextmanager
    def with_object(self, path: str, body: Json) -> Iterator[Json]:
        """An object that is there for a while, whatever its finalizers say."""
        made = self.cluster.request("POST", path, body).expect().body
        where = f"{path}/{made['metadata']['name']}"
        try:
            yield made
        finally:
            self.cluster.request("DELETE", where).expect(200, 202, 404)
            wait_for("it is gone", lambda: self.cluster.request("GET", where).status == 404)


def needed_rules() -> tuple[PolicyRule, ...]:
    """What one identity for all processes needs under `FLAGS`."""
    (everybody,) = subjects(Settings(cloud_provider="simulated"), "kube-system")
    return everybody.rules


def grant(cluster: RealCluster, identity: str, rules: Iterable[PolicyRule]) -> None:
    """Just these, in the namespaces they are for."""
    for namespace, part in groupby(rules, lambda rule: rule.namespace):
        cluster.grant(identity, [rule_body(rule) for rule in part], namespace or None)


def make_healthy(cluster: RealCluster, cloud: Cloud, supervisor: Supervisor) -> None:
    """Nodes, a Service and a volume, and the wait until all have what they need."""

    async def make() -> None:
        kube = await connect(cluster.kubeconfig("admin"))
        try:
            async with CloudAdmin(cloud.url) as admin:
                await add_machines_and_nodes(kube, cloud.url, len(NODES))
                await workload.create(kube, admin)
                async with within():
                    while not _is_served(await workload.observe(kube, admin)):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
        finally:
            await kube.close()

    asyncio.run(make())
    supervisor.wait_running()


def _is_served(seen: workload.WorkloadStatus) -> bool:
    return bool(
        seen.service_address and seen.volume_zone
    ) and seen.routed == seen.service_backends == {*NODES}
