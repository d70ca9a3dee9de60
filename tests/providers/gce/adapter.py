"""The conformance kit's way around the provider: the server's own state."""

from collections.abc import Sequence
from contextlib import ExitStack
from copy import deepcopy
from typing import Any

from ccm.cloud.testkit.adapter import Disk, FaultKind, Machine, ObservedRoute, Owner
from ccm.cloud.testkit.harness import uid_of
from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json
from ccm.providers.gce import api
from ccm.providers.gce.ids import last_part
from ccm.providers.gce.instances import GceInstances
from ccm.providers.gce.routes import DESCRIPTION
from ccm.providers.gce.volumes import CSI_DRIVER, LEGACY_SOURCE, GceVolumes
from tests.labs.gce.cloud import PROJECT, REGION, ZONES
from tests.labs.gce.server import Gce
from tests.providers.patience import PatientAdapter, huge_error

BATCH, PAGE = 3, 4  # the provider's, so that few objects are several batches and pages
NETWORK = f"projects/{PROJECT}/global/networks/default"
FAULTS: dict[FaultKind, dict[str, Any]] = {
    FaultKind.DENIED: {"status": 403, "reason": "forbidden"},
    FaultKind.THROTTLED: {
        "status": 403,
        "reason": "rateLimitExceeded",
        "headers": {"Retry-After": "7"},
    },
    FaultKind.ERROR: {"status": 500},
    FaultKind.SILENT: {"delay": PatientAdapter.call_timeout + 0.3, "status": 503},
    FaultKind.GARBAGE: {"status": 200, "text": "<html>It works!</html>"},
    FaultKind.HUGE: {"status": 400, "text": huge_error()},
}


class GceAdapter(PatientAdapter):
    """Every request and answer has to keep to Google's contract as well."""

    fault_kinds = tuple(FAULTS)
    machine_marks = ("tag:node",)
    page_size = PAGE

    def __init__(self) -> None:
        self._running = ExitStack()
        self.gce: Gce

    def start(self) -> None:
        self.gce = self._running.enter_context(Gce().running())
        GceInstances.batch_size = GceVolumes.batch_size = BATCH

    def stop(self) -> None:
        violations = self.gce.violations
        self._running.close()
        assert not violations, violations

    def reset(self) -> bytes:
        assert not self.gce.violations, self.gce.violations
        self.gce.reset()
        self.gce.cloud.page_size = PAGE
        return config_of(self.gce).encode()

    def is_write(self, operation: str, budget: str) -> bool:
        return budget == api.WRITE

    def snapshot(self) -> object:
        return deepcopy((self.gce.cloud.objects, self.gce.cloud.members))

    def count_calls(self) -> int:
        return len(self.gce.calls) + len(self.gce.token_requests)

    def inject_fault(self, kind: FaultKind) -> None:
        self.gce.is_down = FAULTS[kind]

    def clear_fault(self) -> None:
        self.gce.is_down = {}

    # Machines

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        zones = [ZONES[number % len(ZONES)] for number in range(len(names))]
        add = self.gce.cloud.add_instance
        return [machine_of(add(name, zone)) for name, zone in zip(names, zones, strict=True)]

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        tags = [] if owner is Owner.NOBODY else ["another"]
        return machine_of(self.gce.cloud.add_instance(name, tags={"items": tags}))

    def stop_machine(self, machine: Machine) -> None:
        self._record(machine)["status"] = "TERMINATED"

    def start_machine(self, machine: Machine) -> None:
        self._record(machine)["status"] = "RUNNING"

    def terminate_machine(self, machine: Machine) -> None:
        del self.gce.cloud.objects[path_of(machine)]

    def absent_provider_id(self) -> str:
        return f"gce://{PROJECT}/{ZONES[0]}/absent"

    def _record(self, machine: Machine) -> Json:
        return self.gce.cloud.objects[path_of(machine)]

    # Routes

    def list_routes(self) -> Sequence[ObservedRoute]:
        return [
            ObservedRoute(one["destRange"], provider_id_of(one["nextHopInstance"]))
            for one in self.gce.cloud.named("routes").values()
        ]

    def create_foreign_route(self, cidr: str, machine: Machine, owner: Owner) -> None:
        uid = uid_of("another")
        name = f"another-{uid}" if owner is Owner.OTHER_CLUSTER else "by-hand"
        self.add_route(name, cidr, machine, DESCRIPTION if "-" in uid and name != "by-hand" else "")

    def add_route(self, name: str, cidr: str, machine: Machine, description: str) -> None:
        cloud = self.gce.cloud
        cloud.put(
            f"projects/{PROJECT}/global/routes/{name}",
            "route",
            destRange=cidr,
            nextHopInstance=cloud.link(path_of(machine)),
            network=cloud.link(NETWORK),
            description=description,
            priority=1000,
        )

    # Volumes

    def create_volume(self, source: str) -> Disk:
        path = self.gce.cloud.add_disk(f"disk-{len(self.gce.cloud.objects)}")
        return Disk(spec_of(source, path), ZONES[:1], REGION)

    def delete_volume(self, disk: Disk) -> None:
        handle = disk.spec.get("csi", {}).get("volumeHandle")
        name = last_part(handle) if handle else disk.spec[LEGACY_SOURCE]["pdName"]
        del self.gce.cloud.objects[f"projects/{PROJECT}/zones/{ZONES[0]}/disks/{name}"]

    def absent_volume(self, source: str) -> Json:
        return spec_of(source, f"projects/{PROJECT}/zones/{ZONES[0]}/disks/absent")


def config_of(gce: Gce, *lines: str) -> str:
    """A `[global]` section by which the server is reached."""
    usual = {
        "project-id": PROJECT,
        "local-zone": ZONES[0],
        "network-name": "default",
        "node-tags": "node",
        "api-endpoint": f"{gce.url}/compute/v1/",
        "token-url": f"{gce.url}/token",
        "token-body": "{}",
    }
    given = {line.partition(" = ")[0] for line in lines}
    kept = [f"{key} = {value}" for key, value in usual.items() if key not in given]
    return "\n".join(("[global]", *kept, *(line for line in lines if " = " in line), ""))


def spec_of(source: str, path: str) -> Json:
    if source == LEGACY_SOURCE:
        return {LEGACY_SOURCE: {"pdName": last_part(path)}}
    return {"csi": {"driver": CSI_DRIVER, "volumeHandle": path}}


def path_of(machine: Machine) -> str:
    project, zone, name = machine.provider_id.removeprefix("gce://").split("/")
    return f"projects/{project}/zones/{zone}/instances/{name}"


def provider_id_of(url: str) -> str:
    _, _, path = url.partition("projects/")
    project, _, zone, _, name = path.split("/")
    return f"gce://{project}/{zone}/{name}"


def machine_of(record: Json) -> Machine:
    """What a Node is to get of an instance with one interface."""
    (card,) = record["networkInterfaces"]
    external = [one["natIP"] for one in card["accessConfigs"]]
    kinds = [(AddressType.INTERNAL_IP, card["networkIP"])]
    kinds += [(AddressType.EXTERNAL_IP, one) for one in external]
    return Machine(
        node=record["name"],
        provider_id=provider_id_of(record["selfLink"]),
        type="e2-standard-2",
        zone=last_part(record["zone"]),
        region=REGION,
        addresses=tuple(NodeAddress(*one) for one in kinds),
    )
