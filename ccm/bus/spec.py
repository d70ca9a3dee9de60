"""What a worker process is told when it starts; the only thing that is handed over by spawn."""

from dataclasses import dataclass

from ccm.settings import Settings


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One start of one worker.

    `name` is what an operator calls it ("node-0"), `ident` names this start of it on the bus
    ("node-0.3"), `duty` is the package under `workers` that does the work.
    """

    name: str
    ident: str
    duty: str
    bus_path: str
    supervisor_pid: int
    settings: Settings
