"""The machines of one Proxmox cluster, and how sure we are that these are all.

The list says nothing of UUIDs, and a shorter or empty one proves nothing: a token sees only what it
may, and a host outside the quorum answers with what it knew.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from ccm.cloud.lookup import MAX_PARTS, in_turns
from ccm.cloud.machines import Listing, join_reasons
from ccm.cloud.shared_read import SharedRead
from ccm.decide.budget import MOST_OBJECTS, Allowances
from ccm.errors import CloudError, NotFound
from ccm.http import path_of
from ccm.model.cloud import UUID
from ccm.model.objects import Json, mapping, number, objects, text
from ccm.providers.proxmox.api import ProxmoxApi

VM, CONTAINER = "qemu", "lxc"
RUNNING, STOPPED = "running", "stopped"
UPTIME_STALE = 60.0  # seconds; hosts report them every ten, and later when they are busy
MAX_TEXT = 4096  # characters of a line of a configuration
DOUBTS, DOUBT_PAUSE = 2, 300.0
"""So many times a configuration is doubted at once, then once in so many seconds."""
MOST_LEFT = 10_000  # machines whose last host is remembered, beside as many as there are
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
SKU = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
AUDIT_MACHINES, AUDIT_SYSTEM = "VM.Audit", "Sys.Audit"
AUDIT_AGENT = ("VM.GuestAgent.Audit", "VM.Monitor")  # of Proxmox VE 9, and of those before


@dataclass(frozen=True, slots=True)
class ListedMachine:
    """A record of the cluster's list; `status` is unknown where its host does not answer."""

    vmid: int
    kind: str
    name: str
    host: str
    status: str
    is_template: bool
    cpus: int
    memory_bytes: int
    uptime: float  # seconds
    pool: str = ""
    tags: tuple[str, ...] = ()
    read_at: float = field(default=0.0, compare=False)

    @property
    def started_at(self) -> float:
        """By the clock of `read_at`; of one that does not run, now."""
        return self.read_at - self.uptime

    @property
    def path(self) -> str:
        return path_of("nodes", self.host, VM, str(self.vmid))

    @property
    def may_be_node(self) -> bool:
        """Whether it is no template and no container."""
        return self.kind == VM and not self.is_template

    def is_called(self, node: str) -> bool:
        """Whether it has a Node's name, perhaps with a domain; node-10 is not node-1."""
        return self.name == node or self.name.startswith(f"{node}.")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a machine's configuration says; `uuid` is empty where it says none."""

    uuid: str
    sku: str
    macs: frozenset[str]


class MachineList(Listing[int, ListedMachine]):
    """The list as it was read."""

    def virtual_machines(self) -> list[ListedMachine]:
        """What may be a Node."""
        return [record for record in self.records if record.may_be_node]


class Inventory:
    """Reads one cluster. Configurations are kept for as long as their machines run on."""

    def __init__(self, api: ProxmoxApi) -> None:
        self.api, self.region = api, api.region
        self._cached: dict[int, tuple[ListedMachine, Identity]] = {}
        self._hosts: dict[int, str] = {}  # where each machine was last
        self._members: list[str] = []
        self._reads = WeakValueDictionary[str, SharedRead[Any]]()  # of configurations, by path
        self._doubts = Allowances[int](DOUBTS, DOUBT_PAUSE, MOST_OBJECTS)
        self.read_again = SharedRead(self.read)

    async def read(self) -> MachineList:
        """All machines that the token may see, in one request."""
        answer = await self.api.get("ListMachines", "/cluster/resources", type="vm")
        listed = await read_list(answer)
        current = {vmid: item.host for vmid, item in listed.by_id.items()}
        hosts = self._hosts | current
        self._hosts = hosts if len(hosts) < 2 * len(current) + MOST_LEFT else current
        for vmid in self._cached.keys() - listed.by_id.keys():
            del self._cached[vmid]
        return listed

    def known_with(self, uuid: str) -> list[int]:
        """The numbers of machines that had this UUID when they were read."""
        return [vmid for vmid, (_, identity) in self._cached.items() if identity.uuid == uuid]

    def known_identity(self, machine: ListedMachine) -> Identity | None:
        """What was read of it before; None when that may be another machine's by now."""
        return self._kept(machine)

    def forget_identity(self, machine: ListedMachine) -> None:
        """Read its configuration again when it is next asked for."""
        self._cached.pop(machine.vmid, None)

    def doubt_identity(self, machine: ListedMachine) -> None:
        """The same, once in a while: kubelets may name any machine, and state another UUID."""
        if not self._doubts.take(machine.vmid, monotonic()):
            self.forget_identity(machine)

    async def identity(self, machine: ListedMachine) -> Identity:
        """What its configuration says; raises `NotFound` when it has just moved.

        One without a UUID is read again each time: it may be an answer that lacks something.
        """
        found = self._kept(machine)
        if found is None:
            found = read_identity(await self._configuration(machine), machine.name)
        if found.uuid:
            self._cached[machine.vmid] = machine, found
        return found

    async def _configuration(self, machine: ListedMachine) -> Any:
        """Read once for all who ask at a time: kubelets may name one machine without number."""
        path = f"{machine.path}/config"
        read = self._reads.get(path) or SharedRead(partial(self.api.get, "GetConfig", path))
        self._reads[path] = read
        return await read()

    def _kept(self, machine: ListedMachine) -> Identity | None:
        """A VMID may be given to another machine, which then starts again."""
        before, identity = self._cached.get(machine.vmid, (machine, None))
        is_later = machine.started_at > before.started_at + UPTIME_STALE
        has_restarted = machine.uptime < before.uptime or (is_later and machine.status == RUNNING)
        is_on = machine.status == before.status and not has_restarted
        is_silent = machine.status not in (RUNNING, STOPPED)  # it is started elsewhere
        is_same = machine.name == before.name and (is_on or is_silent)
        return identity if is_same else None

    # Whether a machine that the list lacks is gone

    async def why_incomplete(self) -> list[str]:
        """Why a list of now may lack something although it was read: quorum, and rights."""
        try:
            status = objects(await self.api.get("GetClusterStatus", "/cluster/status"))
            permissions = await self.api.get("GetPermissions", "/access/permissions")
        except CloudError as error:
            return [str(error)]
        self._members = [text(item.get("name")) for item in status if item.get("type") == "node"]
        found = list[str]()
        if not is_quorate(status):
            found.append(f"{self.region} has no quorum")
        if hides_machines(mapping(permissions)):
            found.append(f"the token may not see all machines of {self.region}: {NEEDS_AUDIT}")
        return found

    async def why_kept(self, vmid: int) -> str:
        """Why a machine that the list lacks may be there all the same; empty when it is gone.

        After `why_incomplete` gave no reason, the host it was on last is asked, or each where that
        is not known, and then the list once more: it may have moved.
        """
        hosts = [
            member for member in self._members if member == self._hosts.get(vmid)
        ] or self._members
        if not hosts:
            return f"{self.region} lists no hosts"
        for host in hosts:  # of which an answer may name any number
            if why := await self._why_on(host, vmid):
                return why
        try:
            again = await self.read_again()
        except CloudError as error:
            return str(error)
        is_back = vmid in again.by_id
        return (
            f"machine {vmid} is in the list again"
            if is_back
            else join_reasons(again.incomplete_reasons)
        )

    async def _why_on(self, host: str, vmid: int) -> str:
        """Why a machine may be on this host; empty when that says that it has none."""
        try:
            await self.api.get("GetConfig", path_of("nodes", host, VM, str(vmid)) + "/config")
            return f"host {host} has machine {vmid}, and the list of {self.region} does not"
        except NotFound as error:
            return "" if f"/{vmid}.conf" in str(error) else str(error)
        except CloudError as error:
            return str(error)

    async def missing_permissions(self, with_agent: bool) -> list[str]:
        """What the token lacks of the rights that are needed, by cluster."""
        held = mapping(await self.api.get("GetPermissions", "/access/permissions"))
        on_machines, on_all = _effective(held), mapping(held.get("/"))
        missing = [f"{self.region}: {NEEDS_AUDIT}"] if hides_machines(held) else []
        if AUDIT_SYSTEM not in on_all:
            missing.append(f"{self.region}: {AUDIT_SYSTEM} on /")
        if with_agent and not any(item in on_machines for item in AUDIT_AGENT):
            missing.append(f"{self.region}: {AUDIT_AGENT[0]} on /vms")
        return missing


NEEDS_AUDIT = f"{AUDIT_MACHINES} on /vms, propagated"


async def read_list(answer: object) -> MachineList:
    """The records of a list; one that is not understood makes it incomplete."""
    if not isinstance(answer, list):
        raise CloudError("ListMachines: the answer is not a list")
    found = MachineList()
    async for raw in in_turns(answer):
        machine = read_machine(mapping(raw))
        if machine is None:
            found.incomplete_reasons.append(
                "ListMachines: a machine in the answer is not understood"
            )
        elif found.by_id.setdefault(machine.vmid, machine) is not machine:
            found.incomplete_reasons.append(
                f"ListMachines: machine {machine.vmid} is in the answer twice"
            )
    return found


def read_machine(raw: Mapping[str, object]) -> ListedMachine | None:
    """A record of the list, or None for what is invalid."""
    vmid, host, kind = raw.get("vmid"), text(raw.get("node")), text(raw.get("type"))
    is_machine = isinstance(vmid, int) and vmid > 0 and HOST.fullmatch(host)
    if not is_machine or kind not in (VM, CONTAINER):
        return None
    assert isinstance(vmid, int)
    return ListedMachine(
        vmid=vmid,
        kind=kind,
        name=text(raw.get("name")),
        host=host,
        status=text(raw.get("status")),
        is_template=bool(raw.get("template")),
        cpus=int(number(raw.get("maxcpu"))),
        memory_bytes=int(number(raw.get("maxmem"))),
        uptime=number(raw.get("uptime")),
        pool=text(raw.get("pool")),
        tags=tuple(re.split("[;, ]+", text(raw.get("tags")), maxsplit=MAX_PARTS)),
        read_at=monotonic(),
    )


def read_identity(config: object, name: str) -> Identity:
    """What `smbios1` and the NICs in the configuration of the machine with this name say."""
    if not isinstance(config, dict):
        raise CloudError("GetConfig: the answer is not a configuration")
    if (found := text(config.get("name"))) not in ("", name):
        raise CloudError(f"GetConfig: the answer is about machine {found!r}, not {name!r}")
    pairs = (item.partition("=") for item in text(config.get("smbios1"))[:MAX_TEXT].split(","))
    smbios = {key: value for key, _, value in pairs}
    is_encoded = smbios.get("base64") == "1"
    uuid, sku = (
        _decoded(smbios.get(key, ""), form) if is_encoded else smbios.get(key, "")
        for key, form in (("uuid", UUID), ("sku", SKU))
    )
    return Identity(
        uuid=uuid.lower() if UUID.fullmatch(uuid) else "",
        sku=sku if SKU.fullmatch(sku) else "",
        macs=frozenset(_macs(config)),
    )


def _decoded(value: str, form: re.Pattern[str]) -> str:
    """What is in base64; a UUID never is in newer versions."""
    if form is UUID and form.fullmatch(value):
        return value
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _macs(config: Json) -> list[str]:
    """Those of its NICs, as in `net0: virtio=BC:24:11:00:00:01,bridge=vmbr0`."""
    listed = (value for key, value in config.items() if re.fullmatch(r"net\d+", key))
    nics = ",".join(text(value)[:MAX_TEXT] for value in listed)
    return re.findall(r"=((?:[0-9a-f]{2}:){5}[0-9a-f]{2})", nics.lower())


def is_quorate(status: Sequence[Json]) -> bool:
    """Whether the cluster decides; a host that is in none does so alone."""
    clusters = [item for item in status if item.get("type") == "cluster"]
    if not clusters:
        return len(status) == 1 and status[0].get("type") == "node"
    return len(clusters) == 1 and clusters[0].get("quorate") == 1


def hides_machines(permissions: Mapping[str, object]) -> bool:
    """Whether a token with these rights may lack a machine in its list.

    What is said of a path is instead of what its parents say; 1 is a right that is passed on.
    """
    hidden = [
        path
        for path, rights in permissions.items()
        if path.startswith("/vms/") and AUDIT_MACHINES not in mapping(rights)
    ]
    return bool(hidden) or _effective(permissions).get(AUDIT_MACHINES) != 1


def _effective(permissions: Mapping[str, object]) -> Mapping[str, object]:
    """The rights on all machines."""
    return mapping(permissions.get("/vms", permissions.get("/")))
