"""What the kit needs of a cloud to try a provider on it: the one class that an author writes.

A method may be `async` or plain, as in a provider; plain ones run in a thread. What a cloud cannot
do stays as it is here and raises `Untestable`: the tests that need it are reported as skipped.
"""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

from ccm.model.cloud import NodeAddress
from ccm.model.objects import Json
from ccm.model.service import HealthCheck, Service

T = TypeVar("T")

MaybeAsync: TypeAlias = T | Awaitable[T]

CLUSTER = "kit"
"""The name of the cluster that the provider under test serves."""


class Untestable(Exception):
    """A test needs something that this cloud or its adapter cannot do; the text says what."""


class FaultKind(StrEnum):
    """How every call to the cloud fails while a fault is in force."""

    DENIED = "denied"
    """The credentials may not do this (403)."""
    THROTTLED = "throttled"
    """Too many calls (429), with `Adapter.retry_after`."""
    ERROR = "error"
    """A server error (500)."""
    SILENT = "silent"
    """No answer at all; the provider's own timeout, or the gate's, ends the call."""
    GARBAGE = "garbage"
    """A success whose body is not what was asked for."""
    HUGE = "huge"
    """An error (400) whose text has 5 MB, control characters, and the `secrets` of the request."""
    ENDLESS = "endless"
    """A success whose body comes a byte at a time and never ends."""
    ELSEWHERE = "elsewhere"
    """A redirection (302), or a next page, on another host."""


USUAL_FAULTS = (
    FaultKind.DENIED,
    FaultKind.THROTTLED,
    FaultKind.ERROR,
    FaultKind.SILENT,
    FaultKind.GARBAGE,
)
"""How every cloud can fail."""


class Owner(StrEnum):
    """Whose a resource is that the kit creates beside the provider's own."""

    NOBODY = "nobody"
    """It carries no mark at all."""
    OTHER_CLUSTER = "other cluster"
    """It carries our kind of mark, for another cluster; perhaps a copy, with the same Services."""
    OTHER_SERVICE = "other Service"
    """It carries this cluster's mark, for another Service; balancers only."""


FOREIGN_OWNERS = (Owner.NOBODY, Owner.OTHER_CLUSTER)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that exists: the name its Node has, and what the provider is to say about it.

    Empty fields are not compared. `addresses` are compared without regard to order. `aliases` are
    other ways to write its provider ID.
    """

    node: str
    provider_id: str
    type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[NodeAddress, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedBalancer:
    """One load balancer as it is in the cloud, of any owner.

    `listeners` are (protocol, port, node port), where a node port is 0 if the cloud keeps it with
    the backends and there are none; `backends` provider IDs; `source_ranges` networks,
    empty when every source is permitted; `health_check` is None when it is the cloud's own default.
    """

    name: str
    listeners: frozenset[tuple[str, int, int]]
    backends: frozenset[str]
    source_ranges: frozenset[str] = frozenset()
    health_check: HealthCheck | None = None
    has_affinity: bool = False
    families: frozenset[str] = frozenset({"IPv4"})


@dataclass(frozen=True, slots=True)
class ObservedRoute:
    """One route as it is in the cloud, of any owner."""

    cidr: str
    provider_id: str


@dataclass(frozen=True, slots=True)
class Disk:
    """A volume that exists: the `spec` of its PersistentVolume, and where it is."""

    spec: Json
    zones: tuple[str, ...]
    region: str


class Adapter:
    """Makes and looks at things in the cloud directly, past the provider under test.

    Every method returns once the cloud's own reads show what it did. The kit makes one adapter for
    a run. `start` and `stop` come once; `reset` comes before each test.
    """

    machine_marks: Collection[str] = ()
    """The marks that `create_machines` gives, as `--machine-marks` has them; none where the
    provider goes by marks of its own."""
    page_size: int = 0
    """The most machines, routes or balancers in one answer of a list; 0 when lists come whole. The
    kit makes one more than this, so an emulator is best set to a small one. Two batches of machines
    and one should fit: a page counts as a call."""
    reads_per_batch: int = 1
    """How many lists a `describe` reads for one batch of Nodes, where several belong together."""
    max_machines: int = 1000
    """How many machines the kit may have at once; it wants two batches of the provider and one."""
    retry_after: float | None = 7.0
    """The seconds that a throttled answer names; None when this cloud's answers name none."""
    fault_kinds: Collection[FaultKind] = USUAL_FAULTS
    """What `inject_fault` takes."""
    call_timeout: float = 10.0
    """How long the gate lets one call take. A plain provider's SDK has to give up by itself: make
    the configuration that `reset` returns say so."""
    operation_timeout: float = 60.0
    """How long the kit comes back in all while an operation raises `RetryAfter`."""
    has_http_checks: bool = True
    """Whether balancers can ask nodes at `healthCheckNodePort`. Without it they try the node ports
    themselves, and kube-proxy answers there only where the Service has an endpoint."""
    routes_end_with_machines: bool = False
    """Whether a route is a property of its machine, so that none is left when that is ended."""
    has_node_ports: bool = True
    """Whether listeners show node ports; else they are 0: packets keep the port of the Service."""
    config_path = "cloud.conf"
    """Where the configuration is; a file, for a provider that reads credentials in it again."""
    secrets: Collection[str] = ()
    """The credentials in the configuration, by value: no text may show one."""
    sdk_modules: Collection[str] = ()
    """The modules of the cloud's SDK, such as `botocore`: importing the provider's package must not
    import them."""

    def start(self) -> None:
        """Before the first test: start an emulator, check credentials."""

    def stop(self) -> None:
        """After the last test; also when `start` failed."""

    def reset(self) -> MaybeAsync[bytes]:
        """An empty cloud without faults; returns the `--cloud-config` to reach it with."""
        raise NotImplementedError

    def is_write(self, operation: str, budget: str) -> bool:
        """Whether a call that the provider names so to its gate may change the cloud."""
        return budget == "write"

    def snapshot(self) -> MaybeAsync[object]:
        """Everything that a provider could change, such that equal (`==`) means unchanged."""
        raise NotImplementedError

    def count_calls(self) -> MaybeAsync[int]:
        """How many API calls the cloud itself has counted, apart from the adapter's own."""
        raise Untestable("the adapter does not count the cloud's calls")

    def count_calls_elsewhere(self) -> MaybeAsync[int]:
        """How many requests came to the other host of `FaultKind.ELSEWHERE`."""
        raise Untestable("the adapter has no other host")

    def inject_fault(self, kind: FaultKind) -> MaybeAsync[None]:
        """Let every call of the provider fail like this from now on."""
        raise Untestable("the adapter injects no faults")

    def clear_fault(self) -> MaybeAsync[None]:
        """End the fault."""
        raise Untestable("the adapter injects no faults")

    def refuse_credentials(self) -> MaybeAsync[None]:
        """Let the cloud refuse (401) what the provider shows, and what it got by a login."""
        raise Untestable("the adapter refuses no credentials")

    def renew_credentials(self) -> MaybeAsync[None]:
        """Put others where the configuration says that they are; the cloud takes these."""
        raise Untestable("the adapter renews no credentials")

    def renew_certificate(self) -> MaybeAsync[None]:
        """Give the cloud a certificate of another authority, and the file that is trusted that one.

        Connections of before are closed.
        """
        raise Untestable("the adapter renews no certificate")

    # For `instances`; the other parts need machines as well.

    def create_machines(self, names: Sequence[str]) -> MaybeAsync[Sequence[Machine]]:
        """Running machines, one a name, in this order; the cloud may call their Nodes otherwise."""
        raise Untestable("the adapter creates no machines")

    def create_foreign_machine(self, name: str, owner: Owner) -> MaybeAsync[Machine]:
        """A running machine that is not this cluster's: it has no mark, or another cluster's."""
        raise Untestable("the adapter creates no foreign machines")

    def stop_machine(self, machine: Machine) -> MaybeAsync[None]:
        raise Untestable("the adapter stops no machines")

    def start_machine(self, machine: Machine) -> MaybeAsync[None]:
        raise Untestable("the adapter starts no machines")

    def terminate_machine(self, machine: Machine) -> MaybeAsync[None]:
        """End it for good, whether the cloud still shows it as terminated or not at all."""
        raise Untestable("the adapter terminates no machines")

    def absent_provider_id(self) -> str:
        """A well-formed provider ID that no machine ever had."""
        raise Untestable("the adapter knows no provider ID without a machine")

    def provider_ids_elsewhere(self) -> Sequence[str]:
        """Well-formed ones of places that the cluster has no machine in: another account or region,
        a zone or group that there is not, a number that is too large.
        """
        return (self.absent_provider_id(),)

    # For `load_balancers`.

    def list_balancers(self) -> MaybeAsync[Sequence[ObservedBalancer]]:
        """Every balancer there is, foreign ones included."""
        raise Untestable("the adapter does not list load balancers")

    def balancer_resources(self) -> MaybeAsync[Collection[str]]:
        """The ids of all that the cloud keeps for balancers: themselves, target groups, rules …"""
        raise Untestable("the adapter does not list the resources of load balancers")

    def create_foreign_balancer(
        self, name: str, service: Service, owner: Owner
    ) -> MaybeAsync[None]:
        """A balancer of that name that is not the given Service's, marked so."""
        raise Untestable("the adapter creates no foreign load balancers")

    def references_to(self, name: str) -> MaybeAsync[Sequence[tuple[Mapping[str, str], Json]]]:
        """Each way in which a Service may name that balancer, which is another's, or its address:
        by annotations and fields of `spec`.
        """
        raise Untestable("no Service of this cloud names a load balancer or an address")

    def annotation_sets(self) -> Sequence[Mapping[str, str]]:
        """Sets of annotations, one or more; each asks for another balancer than none does."""
        raise Untestable("the adapter names no annotations")

    def annotation_keys(self) -> Collection[str]:
        """All annotations that the provider reads."""
        return {key for annotations in self.annotation_sets() for key in annotations}

    def free_ip(self) -> MaybeAsync[str]:
        """An IP that a Service may ask for."""
        raise Untestable("the adapter has no IP that may be asked for")

    # For `routes`.

    def list_routes(self) -> MaybeAsync[Sequence[ObservedRoute]]:
        """Every route there is, foreign ones included."""
        raise Untestable("the adapter does not list routes")

    def create_foreign_route(self, cidr: str, machine: Machine, owner: Owner) -> MaybeAsync[None]:
        """A route that is not this cluster's, marked so."""
        raise Untestable("the adapter creates no foreign routes")

    # For `volumes`; `source` is one of the provider's `csi_drivers` or `legacy_sources`.

    def create_volume(self, source: str) -> MaybeAsync[Disk]:
        raise Untestable("the adapter creates no volumes")

    def delete_volume(self, disk: Disk) -> MaybeAsync[None]:
        raise Untestable("the adapter deletes no volumes")

    def absent_volume(self, source: str) -> Json:
        """The `spec` of a PersistentVolume whose volume never existed."""
        raise Untestable("the adapter knows no volume that is not there")
