"""The conformance kit's way around the provider: the lab's own control port."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ccm.cloud.testkit.adapter import FaultKind, Machine, Owner, Untestable
from ccm.model.cloud import swapped_uuid
from ccm.providers.vsphere.instances import VsphereInstances
from tests.labs.vsphere.lab import Lab, config_of, running_lab
from tests.providers.patience import PatientAdapter, huge_error

BATCH = 3  # the provider's, so that few machines are several batches
FAULTS: dict[FaultKind, dict[str, Any]] = {
    FaultKind.DENIED: {"status": 403},
    FaultKind.THROTTLED: {"status": 429, "retry_after": "7"},
    FaultKind.ERROR: {"status": 500},
    FaultKind.SILENT: {"delay_ms": 3000, "status": 503},
    FaultKind.GARBAGE: {"status": 200, "text": "<html>It works!</html>"},
    FaultKind.HUGE: {"status": 400},
}


class VsphereAdapter(PatientAdapter):
    """A machine's UUID is one that none had before."""

    fault_kinds = tuple(FAULTS)

    sdk_modules = ("pyVmomi",)

    def __init__(self) -> None:
        self._running = ExitStack()
        self.lab: Lab

    def start(self) -> None:
        folder = Path(self._running.enter_context(tempfile.TemporaryDirectory()))
        self.lab = self._running.enter_context(running_lab(folder / "lab", ("-vm", "0")))
        self._logins, self.secrets = folder, (self.lab.password,)
        VsphereInstances.batch_size = BATCH

    def stop(self) -> None:
        self._running.close()

    def reset(self) -> bytes:
        self.lab.reset()
        (self._logins / f"{self.lab.server}.username").write_text(self.lab.user)
        self.renew_credentials()
        section = self.lab.section(user=None, password=None)
        files = {"secretsDirectory": str(self._logins)}
        return config_of({"lab": section}, **{"global": files}).encode()

    def refuse_credentials(self) -> None:
        self._set_password("not-the-password")
        self.lab.end_sessions()

    def renew_credentials(self) -> None:
        self._set_password(self.lab.password)

    def _set_password(self, password: str) -> None:
        (self._logins / f"{self.lab.server}.password").write_text(password)

    def is_write(self, operation: str, budget: str) -> bool:
        return False

    def snapshot(self) -> object:
        return self.lab.machines()

    def count_calls(self) -> int:
        return self.lab.calls().total()

    def inject_fault(self, kind: FaultKind) -> None:
        text = {"text": huge_error(self.lab.password)} if kind is FaultKind.HUGE else {}
        self.lab.fail(**FAULTS[kind] | text)

    def clear_fault(self) -> None:
        self.lab.heal()

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        return [machine_of(made) for made in self.lab.create(*names)]

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        raise Untestable("machines carry no mark of a cluster")

    def stop_machine(self, machine: Machine) -> None:
        self.lab.change(machine.node, power="off")

    def start_machine(self, machine: Machine) -> None:
        self.lab.change(machine.node, power="on")

    def terminate_machine(self, machine: Machine) -> None:
        self.lab.change(machine.node, delete=True)

    def absent_provider_id(self) -> str:
        return "vsphere://42ffffff-ab00-4c00-8000-0000000000ff"


def machine_of(made: dict[str, Any]) -> Machine:
    """What the provider is to say of a machine that the lab made, whatever its Node is called."""
    aliases = f"vsphere://{made['uuid'].upper()}", f"vsphere://{swapped_uuid(made['uuid'])}"
    kind = "vsphere-vm.cpu-4.mem-8gb.os-other"
    return Machine(made["name"], f"vsphere://{made['uuid']}", kind, aliases=aliases)
