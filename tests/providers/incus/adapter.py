"""The conformance kit's way around the provider: the lab's Incus, as its administrator asks it."""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ccm.cloud.testkit.adapter import (
    Disk,
    FaultKind,
    Machine,
    ObservedBalancer,
    ObservedRoute,
    Owner,
    Untestable,
)
from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.incus.instances import IncusInstances
from ccm.providers.incus.inventory import ListedInstance
from ccm.providers.incus.lb.request import (
    ADDRESSES,
    COUNTS,
    HEALTH_CHECK,
    KNOWN,
    PORTS,
    SERVICE_UID,
    family_of,
    read_listeners,
)
from ccm.providers.incus.routes import KEYS, MARK, routed_by
from tests.labs.incus.gateway import Rule
from tests.labs.incus.lab import Lab, running_lab
from tests.providers.patience import PatientAdapter, huge_error
from tests.support.deadlines import timeout

BATCH = 3  # the provider's, so that few instances are several batches
SPARE = "kit-"
ABSENT = "00000000-0000-4000-8000-000000000000"
DRIVER, VOLUMES = "csi.incus.test", "/storage-pools/default/volumes/custom"
FOREIGN_IP = "192.0.2.99"
CALL_TIMEOUT = timeout(3.0)
FAULTS: dict[FaultKind, Rule] = {
    FaultKind.DENIED: {"status": 403},
    FaultKind.THROTTLED: {"status": 429, "retry_after": 7},
    FaultKind.ERROR: {"status": 500},
    FaultKind.SILENT: {"delay": CALL_TIMEOUT + 1, "status": 503},
    FaultKind.GARBAGE: {"status": 200, "body": "<html>It works!</html>"},
    FaultKind.HUGE: {"status": 400, "body": huge_error()},
}


FOREIGN = "foreign-1"


class IncusAdapter(PatientAdapter):
    """Instances are kept from test to test, as each takes half a second to make."""

    fault_kinds = tuple(FAULTS)
    max_machines = 2 * BATCH + 1
    has_http_checks = False
    routes_end_with_machines = True
    call_timeout = CALL_TIMEOUT

    machine_marks = ("config:user.zone=zone-a",)

    def __init__(self) -> None:
        self._running = ExitStack()
        self.lab: Lab
        self._used: list[str] = []
        self._path = ""
        self._made = 0

    def start(self) -> None:
        self.lab = self._running.enter_context(running_lab())
        self._path = f"/networks/{self.lab.network}/load-balancers"
        folder = self._running.enter_context(tempfile.TemporaryDirectory())
        self.gateway = self.lab.gateway(Path(folder) / "incus")
        self._running.enter_context(self.gateway.running())
        IncusInstances.batch_size = BATCH
        self._running.callback(self._remove_all)

    def stop(self) -> None:
        self._running.close()

    def _spares(self) -> list[Json]:
        listed = self.lab.get("/instances", recursion=1)
        return [one for one in listed if one["name"].startswith(SPARE)]

    def _remove_all(self) -> None:
        self.lab.remove(*(one["name"] for one in self._spares()))

    def reset(self) -> bytes:
        self.clear_fault()
        self._used.clear()
        if any(one["name"] == FOREIGN for one in self.lab.get("/instances", recursion=1)):
            self.lab.remove(FOREIGN)
        for one in self._balancers():
            self.lab.delete(f"{self._path}/{one['listen_address']}")
        routed = [one["name"] for one in self._spares() if MARK in one["config"] or one["devices"]]
        for name in routed:
            self._set_routes(name, (), "")
        stopped = [one["name"] for one in self._spares() if one["status"] == "Stopped"]
        self.lab.set_state({*stopped, *routed}, "start")
        for one in self.lab.get(VOLUMES):
            self.lab.delete(one.removeprefix("/1.0").partition("?")[0])
        more = f"[Routes]\non-ovn = replug\n[Volumes]\ncsi-driver = {DRIVER}"
        return self.lab.config(f"unix://{self.gateway.socket}", more=more).encode()

    def is_write(self, operation: str, budget: str) -> bool:
        return not operation.startswith(("Get", "List"))

    def snapshot(self) -> object:
        spares = [(one["name"], one["devices"], one["status"]) for one in self._spares()]
        return spares, sorted(self._balancers(), key=str)

    def count_calls(self) -> int:
        return len(self.gateway.calls)

    def inject_fault(self, kind: FaultKind) -> None:
        self.gateway.set_rules(FAULTS[kind])

    def clear_fault(self) -> None:
        self.gateway.set_rules()

    # Machines

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        there = [one["name"] for one in self._spares()]
        free = [name for name in there if name not in self._used]
        while len(free) < len(names):
            self._made += 1
            if (name := f"{SPARE}{self._made}") not in there:
                self.lab.create(name, config={"user.zone": "zone-a"})
                free.append(name)
        chosen = free[: len(names)]
        self._used += chosen
        return [machine_of(self.lab.instance(name), self.lab.addresses(name)) for name in chosen]

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        self.lab.create(FOREIGN, config={} if owner is Owner.NOBODY else {"user.zone": "zone-b"})
        return machine_of(self.lab.instance(FOREIGN), self.lab.addresses(FOREIGN))

    def stop_machine(self, machine: Machine) -> None:
        self.lab.set_state([machine.node], "stop")

    def start_machine(self, machine: Machine) -> None:
        self.lab.set_state([machine.node], "start")

    def terminate_machine(self, machine: Machine) -> None:
        self.lab.remove(machine.node)

    def absent_provider_id(self) -> str:
        return f"incus://{self.lab.project}/{ABSENT}"

    # Routes

    def list_routes(self) -> Sequence[ObservedRoute]:
        found = []
        for one in self._spares():
            instance = ListedInstance(None, self.lab.project, one)  # type: ignore[arg-type]
            provider_id = f"incus://{instance.project}/{instance.uuid}"
            found += [ObservedRoute(str(cidr), provider_id) for cidr in routed_by(instance)]
        return found

    def create_foreign_route(self, cidr: str, machine: Machine, owner: Owner) -> None:
        mark = "" if owner is Owner.NOBODY else f"another:{cidr}"
        self._set_routes(machine.node, (cidr,), mark)
        self.lab.set_state([machine.node], "start")

    def _set_routes(self, name: str, cidrs: Sequence[str], mark: str) -> None:
        """Exactly these on the NIC, which is put back for that."""
        device = {"name": "eth0", "network": self.lab.network, "type": "nic"}
        routes = {KEYS[4]: ",".join(cidrs)} if cidrs else {}
        body = {"devices": {"eth0": {**device, **routes}}, "config": {MARK: mark}}
        self.lab.call("PATCH", f"/instances/{name}", body)

    # Volumes

    def create_volume(self, source: str) -> Disk:
        self._made += 1
        self.lab.call("POST", VOLUMES, {"name": f"kit-{self._made}", "type": "custom"})
        return Disk(disk_spec(source, f"kit-{self._made}"), ("m1",), "lab")

    def delete_volume(self, disk: Disk) -> None:
        self.lab.delete(f"{VOLUMES}/{disk.spec['csi']['volumeHandle'].rpartition('/')[2]}")

    def absent_volume(self, source: str) -> Json:
        return disk_spec(source, "never")

    # Balancers

    def _balancers(self) -> list[Json]:
        return list(self.lab.get(self._path, recursion=1))

    def list_balancers(self) -> Sequence[ObservedBalancer]:
        """One for each Service, which may be two in Incus: one for each IP family."""
        by_uid: dict[str, list[Json]] = {}
        for one in self._balancers():
            by_uid.setdefault(one["config"].get(SERVICE_UID, ""), []).append(one)
        ids = {
            one["name"]: f"incus://{one['project']}/{one['config']['volatile.uuid']}"
            for one in self._spares()
        }
        return [observed(uid, records, ids) for uid, records in by_uid.items()]

    def balancer_resources(self) -> Collection[str]:
        return [one["listen_address"] for one in self._balancers()]

    def create_foreign_balancer(self, name: str, service: Service, owner: Owner) -> None:
        if service.name == "web":
            raise Untestable("balancers have no names, only addresses and marks")
        cluster = {"user.ccm.cluster": "another", SERVICE_UID: service.uid}
        config = {} if owner is Owner.NOBODY else cluster
        self.lab.call("POST", self._path, {"listen_address": FOREIGN_IP, "config": config})

    def references_to(self, name: str) -> Sequence[tuple[Mapping[str, str], Json]]:
        return [({ADDRESSES: FOREIGN_IP}, {}), ({}, {"loadBalancerIP": FOREIGN_IP})]

    def annotation_sets(self) -> Sequence[Mapping[str, str]]:
        return [{ADDRESSES: "192.0.2.77"}, {HEALTH_CHECK: "false"}] + [
            {f"{HEALTH_CHECK}-{name}": "7"} for name in COUNTS
        ]

    def annotation_keys(self) -> Collection[str]:
        return KNOWN

    def free_ip(self) -> str:
        return "192.0.2.77"


def observed(uid: str, records: Sequence[Json], ids: Mapping[str, str]) -> ObservedBalancer:
    """What the kit wants to know of the balancers of one Service."""
    listeners, backends = set(), set()
    for one in records:
        targets = {backend["name"]: backend["target_port"] for backend in one["backends"]}
        backends |= {ids[name.rpartition("-")[0]] for name in targets}
        for port in one["ports"]:
            ports = {int(targets[name]) for name in port["target_backend"]}
            listeners |= {(port["protocol"].upper(), int(port["listen_port"]), to) for to in ports}
        if not one["ports"]:
            kept = read_listeners(one["config"].get(PORTS) or "tcp/1/1")
            listeners |= {(port.protocol.upper(), port.port, 0) for port in kept}
    return ObservedBalancer(
        name=Service({"metadata": {"uid": uid}}).default_balancer_name,
        listeners=frozenset(listeners),
        backends=frozenset(backends),
        families=frozenset(family_of(one["listen_address"]) for one in records),
    )


def disk_spec(driver: str, name: str) -> Json:
    """The `spec` of the PersistentVolume of a custom volume."""
    return {"csi": {"driver": driver, "volumeHandle": f"k8s/default/{name}"}}


def machine_of(record: Json, addresses: Sequence[Json]) -> Machine:
    """What the provider is to say of an instance; a stopped one has no addresses."""
    found = [NodeAddress(AddressType.INTERNAL_IP, one["address"]) for one in addresses]
    host = NodeAddress(AddressType.HOSTNAME, record["name"])
    provider_id = f"incus://{record['project']}/{record['config']['volatile.uuid']}"
    aliases = (
        f"incus://moved/{record['config']['volatile.uuid'].upper()}",
        f"lxc:///{record['name']}",
    )
    name, kind = record["name"], "container"
    return Machine(name, provider_id, kind, "zone-a", "lab", (*found, host), aliases)
