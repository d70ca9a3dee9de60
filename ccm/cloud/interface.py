"""The contract between the controllers and a cloud; a provider author reads this file first.

A provider is a `CloudProvider`. It leaves out the parts its cloud does not have, and it makes every
call to its cloud through the gate it is given, so that all workers together stay within one budget.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from ccm.model.cloud import Answer, Balancer, OwnedBalancer, PlaceAnswer, Route
from ccm.model.objects import Node
from ccm.model.service import Feature, Service
from ccm.model.volume import PersistentVolume

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Quota:
    """What the cloud's documentation allows for one class of calls, for the whole account."""

    per_second: float
    burst: int


class Gate(Protocol):
    """The only way to the cloud: grant, call with a timeout, metrics, error class.

    `operation` names the call in metrics and logs ("DescribeInstances"). `budget` is one of the
    classes in `CloudProvider.quotas`. `is_write` is true of a call that may change something which
    others see: `plan` makes none of them; logging in is a read. A call that raises `Throttled`
    slows all workers at once. Raises what the call raises; a call that outlives its deadline raises
    `CloudError`.
    """

    async def call(
        self, operation: str, budget: str, function: Callable[[], Awaitable[T]], *, is_write: bool
    ) -> T:
        """Run one asynchronous cloud call once a grant is there."""
        ...

    def call_blocking(
        self, operation: str, budget: str, function: Callable[[], T], *, is_write: bool
    ) -> T:
        """The same for a provider method that runs in the thread pool."""
        ...

    def report_remaining(self, budget: str, calls: int, seconds: float) -> None:
        """An answer allowed `calls` more calls, of all processes, in `seconds` from now.

        To be called in the event loop, by a provider whose cloud reports it. No worker goes on
        beyond that: the most urgent calls have what is left.
        """
        ...


SecretReader = Callable[[str, str], Awaitable[Mapping[str, str]]]
"""Gives what the Secret of this namespace and name holds now, as text.

Raises `Denied` when there is none or it may not be read, `CloudError` when the API server does
not answer.
"""


ConfigMapKeeper = Callable[[str, str, Mapping[str, str]], Awaitable[Mapping[str, str]]]
"""Gives the data of the ConfigMap of this namespace and name.

One that is missing is made with this data, where that is allowed; a dry run makes none. Raises
`Denied` when it may not be read, `CloudError` when the API server does not answer.
"""


NamespaceReader = Callable[[str], Awaitable[Mapping[str, str]]]
"""Gives the labels that the Namespace of this name has now; raises as a `SecretReader`."""


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What a provider is given when it starts."""

    gate: Gate
    config: bytes  # the content of --cloud-config; empty when the flag is not set
    config_path: str  # for error messages only
    cluster_name: str
    caller: str  # the worker that asks, such as "node-0"; for the cloud's own request log
    allow_untagged: bool = (
        False  # --allow-untagged-cloud: no cluster ID is no reason to refuse reads
    )
    cluster_uid: str = ""  # never another cluster's; empty where it may not be read
    restricts_annotations: bool = False
    """--restrict-service-annotations, for what is privileged only by what an annotation names."""
    on_change: Callable[[], None] | None = None
    """To be called, in the event loop, whenever the cloud notifies us that something about machines
    changed: they are read soon, once for many calls. It is a hint that saves
    waiting: nothing may depend on it. None in a worker that asks about no machines.
    """
    read_secret: SecretReader | None = None
    """For credentials that are in a Secret. The operator grants `get` of it: see the docs."""
    keep_config_map: ConfigMapKeeper | None = None
    """For what upstream's provider keeps in one. The operator grants `get` and `create` of it."""
    read_namespace: NamespaceReader | None = None
    """For choices by the labels of a Service's namespace. The operator grants `get` of it."""


Read = Callable[[Sequence[T]], Mapping[str, A] | Awaitable[Mapping[str, A]]]
"""A method of a provider that answers for many objects at once, by their names."""


class Instances(Protocol):
    """What the cloud knows about machines (upstream: InstancesV2, but batched and three-valued)."""

    batch_size: int
    """How many Nodes one `describe` turns into one cloud call; the caller fills batches to this."""

    def describe(
        self, nodes: Sequence[Node]
    ) -> Mapping[str, Answer] | Awaitable[Mapping[str, Answer]]:
        """Answer for each Node by name; existence, metadata and power state in one read.

        A Node is looked up by `provider_id`, or by name while it has none. `Gone` is the cloud's
        positive word: about a provider ID it takes two kinds of read, such as a list and a request
        for the machine alone, so that one read's fault deletes no Node. Whatever is not positively
        known is `Unknown`, and a Node left out of the result counts as `Unknown`. Raises
        `CloudError` when nothing at all could be read. `MachineLookup` of `ccm.cloud.machines` does
        this for clouds that list their machines.
        """
        ...

    def machine_of(self, provider_id: str) -> str:
        """The machine that a provider ID names: always the same text, however the ID is written.

        Two Nodes with one machine are found by it. Empty when it names no machine. What only the
        cloud knows of other ways to write it is in `Instance.aliases`.
        """
        ...


class LoadBalancers(Protocol):
    """Load balancers for Services, all with our ownership mark: cluster and Service UID.

    One without the mark, even of the right name, is never changed or deleted: `Refused`.
    Raises `RetryAfter` while the cloud is at work, `Refused` for what this cloud cannot do until
    the Service changes, `NoRoom` until another load balancer is gone, `ImplementedElsewhere` when
    another controller looks after this Service. After `TakenByAnother` what it had is given up.
    """

    supported_features: frozenset[Feature]
    """What this cloud can do; a Service that asks for another feature is refused beforehand."""
    privileged_annotations: frozenset[str]
    """Annotations by which a Service reaches what is not its own, such as security groups; with
    `--restrict-service-annotations` a Service that has one is refused beforehand.
    """

    def name_for(self, service: Service) -> str:
        """The load balancer's name: always the same for one Service, never empty."""
        ...

    def get(self, service: Service) -> Balancer | None | Awaitable[Balancer | None]:
        """The load balancer of this Service, whatever it asks for; None when there is none of ours.

        The status of one that is refused is compared with its addresses: none while it is deleted.
        """
        ...

    def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer | Awaitable[Balancer]:
        """Make the load balancer what the Service asks for, with these nodes behind it.

        Reads and compares first and writes only differences: when nothing differs, no write call.
        Interrupted anywhere, a repetition converges. Where the cloud would make a second one of its
        name, call `verify_missing` of `ccm.cloud.gate` before a creation.
        """
        ...

    def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None | Awaitable[None]:
        """Replace the nodes only; writes nothing when they are right. `Refused` without one.

        What else the Service asks for may have been refused. Where machines have the address of
        their load balancer, ports that it has no longer are closed.
        """
        ...

    def delete(self, service: Service) -> None | Awaitable[None]:
        """Take the load balancer and every leftover of it away; nothing there is success."""
        ...


@runtime_checkable
class ChecksServices(Protocol):
    """What a `LoadBalancers` may have besides, where it refuses Services by what they ask for."""

    def check_service(self, service: Service) -> None:
        """Raise `Refused` for what `ensure` refuses of every Service that asks for the same.

        Asks no cloud. A Service that is refused before anything was made of it gets no finalizer.
        """
        ...


@runtime_checkable
class ExcludesStoppedNodes(Protocol):
    """What a `LoadBalancers` has besides, whose cloud takes no machines that are off: it is given
    its nodes again when one of them gets or loses the shutdown taint.
    """

    excludes_stopped_nodes: bool


@runtime_checkable
class SharesBackends(Protocol):
    """What a `LoadBalancers` has besides, where several have the same backends: to `update_nodes`
    with none for one of them would take all away.
    """

    def withdraw(self, service: Service) -> None | Awaitable[None]:
        """Lead no client of the Service to its node ports, which are another's now."""
        ...


@runtime_checkable
class BatchesReads(Protocol):
    """What a `LoadBalancers` has besides that makes one read for many Services.

    Then the reads with which `ensure` and `update_nodes` of N Services begin at the same time are
    N / `batch_size` calls, rounded up.
    """

    batch_size: int


@runtime_checkable
class LooksUp(Protocol):
    """What an `Instances` may have besides. A `MachineLookup` has it."""

    async def look_up(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """As `describe`, without a proof that a machine is gone, which may take a call each.

        `is_nowhere` where none was found: kubelets make up any number of IDs.
        """
        ...


def look_up_of(instances: Instances) -> Read[Node, Answer]:
    """Its `look_up`, or `describe` where it has no cheaper way."""
    return instances.look_up if isinstance(instances, LooksUp) else instances.describe


NOT_LOOKED = "the cloud was not asked yet at the place that its provider ID names"


@runtime_checkable
class MarksMachines(Protocol):
    """What an `Instances` has besides, where machines carry marks that only the cloud's owner can
    give: a network, a tag, metadata. A `MachineLookup` has it.
    """

    required_marks: frozenset[str]
    """What machines have to carry; those that the configuration implies before `require_marks`."""

    def require_marks(self, marks: Collection[str]) -> None:
        """Take only machines with these marks, too, for the cluster's; with `any` the implied ones
        are not required. Raises `ConfigurationFault` for what is no mark here.
        """
        ...

    async def foreign(self, nodes: Sequence[Node]) -> Mapping[str, str]:
        """Why the machines of these Nodes are not the cluster's, by name; empty for its own.

        What cannot be asked about is not the cluster's either. Left out are Nodes whose machines
        were not found; `NOT_LOOKED` are those to ask about again. Raises `CloudError` when nothing
        could be read. For routes and load balancers, which may be about Nodes that are not
        initialized.
        """
        ...


@runtime_checkable
class ListsOwned(Protocol):
    """What a `LoadBalancers` may have besides, so that those without a Service can be found."""

    def owned(self) -> Sequence[OwnedBalancer] | Awaitable[Sequence[OwnedBalancer]]:
        """Every load balancer, or leftover of one, with this cluster's mark, and no other.

        Raises rather than answer with a part: what is missing here would pass for deleted.
        """
        ...


@runtime_checkable
class SelectsNodesByLabel(Protocol):
    """What a `LoadBalancers` may have besides, where Services choose among the nodes by labels."""

    def selector_labels(self, service: Service) -> Collection[str]:
        """The keys of the labels that this Service chooses by; other labels are no change."""
        ...


@runtime_checkable
class ReportsMissingPermissions(Protocol):
    """What an `Instances` or a `LoadBalancers` may have besides, where its reads do not show all
    rights that are needed.
    """

    def missing_permissions(self) -> Sequence[str] | Awaitable[Sequence[str]]:
        """The rights to read that the credentials lack, by the cloud's names; for `check`."""
        ...


class Routes(Protocol):
    """Routes to pod networks, those that carry this cluster's mark only."""

    def list(self, nodes: Sequence[Node]) -> Sequence[Route] | Awaitable[Sequence[Route]]:
        """Every route of this cluster, blackholes included; `nodes` map machines to Nodes."""
        ...

    def create(self, node: Node, cidr: str) -> None | Awaitable[None]:
        """Route `cidr` to this Node's machine; the very same route being there is success.

        Raises `Refused` when the cloud has no room for it or the network is taken.
        """
        ...

    def delete(self, route: Route) -> None | Awaitable[None]:
        """Take away a route as it was listed; nothing there is success."""
        ...


class Volumes(Protocol):
    """Where volumes are."""

    csi_drivers: frozenset[str]
    """`spec.csi.driver` of the volumes that are this cloud's."""
    legacy_sources: frozenset[str]
    """Keys of `spec` that hold such a volume from before CSI, such as `awsElasticBlockStore`."""
    batch_size: int

    def describe(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, PlaceAnswer] | Awaitable[Mapping[str, PlaceAnswer]]:
        """Answer for each volume by the name of its PersistentVolume, as `Instances.describe`."""
        ...


@runtime_checkable
class RegionalVolumes(Protocol):
    """What a `Volumes` has besides, whose cloud has regions only: a place without zones is then
    somewhere in its region, and not unknown.
    """

    has_zones: bool


@runtime_checkable
class ProvesCredentials(Protocol):
    """What a `CloudProvider` has besides, where asking for one Node reads all machines."""

    def prove_credentials(self) -> None | Awaitable[None]:
        """Make one small read of each account, such as one record or a login.

        Raises what the reads raise: `Denied` where the cloud does not take the credentials.
        """
        ...


class CloudProvider(Protocol):
    """One cloud. `provider_ids` matches each provider ID that is its own, whole.

    A Node with another one is left alone. `quotas` and the parts (`instances`, …) may depend on the
    configuration: they are read after `initialize`. A class that names this one as its parent sets
    the parts that its cloud has, and has none of the others.
    """

    name: str
    provider_ids: re.Pattern[str]
    quotas: Mapping[str, Quota]
    has_cluster_id: bool = True
    instances: Instances | None = None
    load_balancers: LoadBalancers | None = None
    routes: Routes | None = None
    volumes: Volumes | None = None

    async def initialize(self, context: ProviderContext) -> None:
        """Read the configuration and get ready; faults in it raise `ConfigurationFaults`.

        Called once in every worker, leader or not, so it makes no write to the cloud.
        """
        ...

    async def close(self) -> None:
        """Give back what `initialize` took."""
        ...
