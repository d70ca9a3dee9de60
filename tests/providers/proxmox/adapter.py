"""The conformance kit's way around the provider: fakepve, as its own objects say."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from ccm.cloud.testkit.adapter import FaultKind, Machine, Owner
from ccm.providers.proxmox.instances import ProxmoxInstances
from tests.providers.patience import PatientAdapter, huge_error
from tests.providers.proxmox.served import SECRET, TOKEN, Served, config_of

BATCH = 3  # the provider's, so that few machines are several batches
FAULTS: dict[FaultKind, dict[str, Any]] = {
    FaultKind.DENIED: {"status": 403},
    FaultKind.THROTTLED: {"status": 429, "headers": {"Retry-After": "7"}},
    FaultKind.ERROR: {"status": 500},
    FaultKind.SILENT: {"delay": 3.0, "status": 503},
    FaultKind.GARBAGE: {"status": 200, "text": "<html>It works!</html>"},
    FaultKind.HUGE: {"status": 400, "text": huge_error(SECRET)},
}


class ProxmoxAdapter(PatientAdapter):
    """A new VMID for every machine, whatever the test."""

    fault_kinds = tuple(FAULTS)
    machine_marks = ("tag:kit",)
    secrets = (SECRET,)

    def __init__(self) -> None:
        self._running = ExitStack()
        self._folder = Path(self._running.enter_context(tempfile.TemporaryDirectory()))
        self._secret_file = self._folder / "secret"
        self.pve: Served
        self._vmids = count(100)

    def start(self) -> None:
        self.pve = self._running.enter_context(Served(self._folder).running())
        ProxmoxInstances.batch_size = BATCH

    def stop(self) -> None:
        self._running.close()

    def reset(self) -> bytes:
        self.pve.reset()
        self._secret_file.write_text(SECRET)
        secret = {"token_secret": "", "token_secret_file": str(self._secret_file)}
        return config_of(self.pve.section(**secret)).encode()

    def refuse_credentials(self) -> None:
        self.pve.apitokens = {}

    def renew_credentials(self) -> None:
        renewed = SECRET.replace("0", "1")
        self.pve.apitokens = {TOKEN: renewed}
        self._secret_file.write_text(renewed)

    def is_write(self, operation: str, budget: str) -> bool:
        return False

    def snapshot(self) -> object:
        return [(one.vmid, one.name, one.status, dict(one.config)) for one in self.pve.vms]

    def count_calls(self) -> int:
        return len(self.pve.requests)

    def inject_fault(self, kind: FaultKind) -> None:
        self.pve.fault = FAULTS[kind]

    def clear_fault(self) -> None:
        self.pve.fault = {}

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        return [self._create(next(self._vmids), name, "kit;worker") for name in names]

    def _create(self, vmid: int, name: str, tags: str) -> Machine:
        uuid = f"{vmid:08d}-0000-4000-8000-000000000000"
        self.pve.add(vmid, name, uuid, config={"tags": tags} if tags else {})
        aliases = f"proxmox:///{vmid}", f"proxmox://{uuid}"
        provider_id = f"proxmox://one/{vmid}"
        return Machine(name, provider_id, "4VCPU-8GB", "pve1", "one", aliases=aliases)

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        return self._create(next(self._vmids), name, "" if owner is Owner.NOBODY else "another")

    def stop_machine(self, machine: Machine) -> None:
        self.pve.vm(vmid_of(machine)).status = "stopped"

    def start_machine(self, machine: Machine) -> None:
        self.pve.vm(vmid_of(machine)).status = "running"

    def terminate_machine(self, machine: Machine) -> None:
        self.pve.remove(vmid_of(machine))

    def absent_provider_id(self) -> str:
        return "proxmox://one/999999"


def vmid_of(machine: Machine) -> int:
    return int(machine.provider_id.rpartition("/")[2])
