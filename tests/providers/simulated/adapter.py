"""The conformance kit's way around the provider: the simulated cloud as a process of its own."""

import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ccm.cloud.testkit.adapter import (
    CLUSTER,
    Disk,
    FaultKind,
    Machine,
    ObservedBalancer,
    ObservedRoute,
    Owner,
)
from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json
from ccm.model.service import HealthCheck, Service
from ccm.providers.simulated.load_balancers import SCHEME_ANNOTATION
from ccm.sandbox.cloud import records
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.service import TOKEN
from tests.providers.patience import PatientAdapter
from tests.support.deadlines import timeout
from tests.support.running import wait_for

PAGE = 4
FAULTS = {
    FaultKind.DENIED: CloudFaultKind.DENIED,
    FaultKind.THROTTLED: CloudFaultKind.THROTTLE,
    FaultKind.ERROR: CloudFaultKind.ERROR,
    FaultKind.SILENT: CloudFaultKind.TIMEOUT,
    FaultKind.GARBAGE: CloudFaultKind.GARBAGE,
    FaultKind.HUGE: CloudFaultKind.ERROR,
}
KINDS = ("machines", "load_balancers", "routes", "volumes")


class SimulatedAdapter(PatientAdapter):
    """Works on the admin surface, which neither counts nor fails."""

    machine_marks = (f"label:cluster={CLUSTER}",)
    page_size = PAGE
    fault_kinds = tuple(FAULTS)
    secrets = (TOKEN,)
    sdk_modules = ("aiohttp", "ccm.sandbox")

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._child: subprocess.Popen[bytes] | None = None
        self._url, self._token_file = "", Path(self._directory.name, "token")

    def start(self) -> None:
        file = Path(self._directory.name, "url")
        command = [sys.executable, "-m", "ccm.sandbox.cloud", f"--url-file={file}"]
        self._child = subprocess.Popen([*command, f"--page={PAGE}"], stdout=subprocess.DEVNULL)
        wait_for("the cloud is ready", file.exists)
        self._url = file.read_text()

    def stop(self) -> None:
        if self._child:
            self._child.terminate()
            self._child.wait(timeout())
        self._directory.cleanup()

    async def reset(self) -> bytes:
        async with self._admin() as admin:
            await admin.clear_faults()
            await admin.replace_state({})
        self.renew_credentials()
        url = f"[Global]\nurl = {self._url}\ntoken-file = {self._token_file}\n"
        return f"{url}page-size = {PAGE}\ntimeout = {timeout(0.5):g}s\n".encode()

    def refuse_credentials(self) -> None:
        self._token_file.write_text("token-that-nobody-has")

    def renew_credentials(self) -> None:
        self._token_file.write_text(TOKEN)

    def is_write(self, operation: str, budget: str) -> bool:
        return budget == "write"

    async def snapshot(self) -> object:
        return {kind: await self._records(kind) for kind in KINDS}

    async def count_calls(self) -> int:
        async with self._admin() as admin:
            return int((await admin.counters())["total"])

    async def inject_fault(self, kind: FaultKind) -> None:
        async with self._admin() as admin:
            fault = CloudFault(FAULTS[kind], retry_after=self.retry_after or 0)
            if kind is FaultKind.HUGE:
                text = f"Bearer {TOKEN}\x1b[31m\n"
                fault = replace(fault, status=400, message=text, message_size=5_000_000)
            await admin.set_fault(fault)

    async def clear_fault(self) -> None:
        async with self._admin() as admin:
            await admin.clear_faults()

    async def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        async with self._admin() as admin:
            ours = {"cluster": CLUSTER}
            wanted = [
                records.Machine(one, zone="zone-b", type="large", labels=ours) for one in names
            ]
            return [_machine(made) for made in await admin.add(wanted)]

    async def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        labels = {} if owner is Owner.NOBODY else {"cluster": "another"}
        async with self._admin() as admin:
            (made,) = await admin.add([records.Machine(name, labels=labels)])
        return _machine(made)

    async def stop_machine(self, machine: Machine) -> None:
        async with self._admin() as admin:
            await admin.stop(_id(machine.provider_id))

    async def start_machine(self, machine: Machine) -> None:
        async with self._admin() as admin:
            await admin.start(_id(machine.provider_id))

    async def terminate_machine(self, machine: Machine) -> None:
        async with self._admin() as admin:
            await admin.terminate(_id(machine.provider_id))

    def absent_provider_id(self) -> str:
        return "simulated://m-99999999"

    async def list_balancers(self) -> Sequence[ObservedBalancer]:
        return [_balancer(record) for record in await self._records("load_balancers")]

    async def balancer_resources(self) -> Collection[str]:
        return [record["id"] for record in await self._records("load_balancers")]

    async def create_foreign_balancer(self, name: str, service: Service, owner: Owner) -> None:
        ours = {"cluster": CLUSTER, "service": service.uid}
        tags = {
            Owner.NOBODY: {},
            Owner.OTHER_CLUSTER: ours | {"cluster": "another"},
            Owner.OTHER_SERVICE: ours | {"service": "another"},
        }[owner]
        listeners = [{"protocol": "TCP", "port": 22, "node_port": 30022}]
        await self._plant("load_balancers", name=name, tags=tags, listeners=listeners)

    async def references_to(self, name: str) -> Sequence[tuple[Mapping[str, str], Json]]:
        records = await self._records("load_balancers")
        return [({}, {"loadBalancerIP": one["ip"]}) for one in records if one["name"] == name]

    def annotation_sets(self) -> Sequence[Mapping[str, str]]:
        return [{SCHEME_ANNOTATION: "internal"}]

    def free_ip(self) -> str:
        return "192.0.2.77"

    async def list_routes(self) -> Sequence[ObservedRoute]:
        return [
            ObservedRoute(record["cidr"], f"simulated://{record['machine_id']}")
            for record in await self._records("routes")
        ]

    async def create_foreign_route(self, cidr: str, machine: Machine, owner: Owner) -> None:
        tags = {"cluster": "another"} if owner is Owner.OTHER_CLUSTER else {}
        await self._plant("routes", cidr=cidr, machine_id=_id(machine.provider_id), tags=tags)

    async def create_volume(self, source: str) -> Disk:
        number = len(await self._records("volumes"))
        await self._plant("volumes", id=f"vol-{number}", zones=["zone-a", "zone-b"])
        return Disk(_spec(source, f"vol-{number}"), ("zone-a", "zone-b"), "region-1")

    async def delete_volume(self, disk: Disk) -> None:
        gone = disk.spec["csi"]["volumeHandle"]
        left = [record for record in await self._records("volumes") if record["id"] != gone]
        async with self._admin() as admin:
            await admin.replace_state({**await self._state(), "volumes": left})

    def absent_volume(self, source: str) -> Json:
        return _spec(source, "vol-404")

    def _admin(self) -> CloudAdmin:
        return CloudAdmin(self._url, timeout())

    async def _state(self) -> Json:
        async with self._admin() as admin:
            return await admin.state()

    async def _records(self, kind: str) -> list[Json]:
        return list((await self._state())[kind])

    async def _plant(self, kind: str, **record: Any) -> None:
        state = await self._state()
        async with self._admin() as admin:
            await admin.replace_state({**state, kind: [*state[kind], record]})


def _id(provider_id: str) -> str:
    return provider_id.removeprefix("simulated://")


def _machine(made: records.Machine) -> Machine:
    addresses = tuple(NodeAddress(AddressType(a.type), a.address) for a in made.addresses)
    return Machine(
        made.name, f"simulated://{made.id}", made.type, made.zone, made.region, addresses
    )


def _balancer(record: Json) -> ObservedBalancer:
    health = record["health_check"]
    return ObservedBalancer(
        name=record["name"],
        listeners=frozenset(
            (one["protocol"], one["port"], one["node_port"]) for one in record["listeners"]
        ),
        backends=frozenset(f"simulated://{backend}" for backend in record["backends"]),
        source_ranges=frozenset(record["source_ranges"]),
        health_check=HealthCheck(health["port"], health["path"]) if health else None,
    )


def _spec(driver: str, handle: str) -> Json:
    return {"csi": {"driver": driver, "volumeHandle": handle}}
