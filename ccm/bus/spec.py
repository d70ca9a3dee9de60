"""What a worker process is told when it starts; the only thing that is handed over by spawn."""

from dataclasses import dataclass, field

from ccm.model.server import Server
from ccm.settings import Settings


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One start of one worker.

    `name` is what an operator calls it ("node-0"), `ident` names this start of it on the bus
    ("node-0.3"), `controller` is the package under `workers` that it runs. `suspects` are
    keys that run alone, `quarantined` those that run alone and not before a monotonic time. In a
    dry run nothing is written. The token for `server` comes over the bus.
    """

    name: str
    ident: str
    controller: str
    bus_path: str
    journal_path: str
    supervisor_pid: int
    settings: Settings
    server: Server
    is_dry_run: bool = False
    suspects: tuple[str, ...] = ()
    quarantined: dict[str, float] = field(default_factory=dict)
