"""The service controller: what it watches, and one reconcile a Service, step by step until done."""

import asyncio
import logging
import random
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice

from ccm.background import start_task
from ccm.bus.frames import Message
from ccm.cloud.interface import (
    ChecksServices,
    ExcludesStoppedNodes,
    LoadBalancers,
    SelectsNodesByLabel,
)
from ccm.decide.backoff import Backoff
from ccm.errors import CloudError, KubernetesError, NotLeading, Refused, RetryAfter, Unreachable
from ccm.kube.events import ObjectRef
from ccm.model.objects import FieldPath, Json, Node, Projection
from ccm.model.service import SPEC_FIELDS, Service, as_proxied_by, relevant_spec
from ccm.settings import Settings
from workers.controller import Controller, ControllerContext, NotNeeded, Result
from workers.executor import NamespaceSlots, ProcessorShares, Slots
from workers.machines import NodeMachines
from workers.queue import namespace_of
from workers.service.backends import NODE_FIELDS, BackendSet
from workers.service.plan import (
    Action,
    Capabilities,
    CloudCall,
    ConfirmGone,
    DeleteBalancer,
    Done,
    EnsureBalancer,
    PlannedStep,
    Refuse,
    SetStatus,
    UpdateNodes,
    VerifyPublished,
    is_of_our_class,
    mass_deletion_reason,
    patch_for,
    plan,
    wants_balancer,
)
from workers.service.state import (
    NodePorts,
    PublishedAddresses,
    Refusal,
    ServiceState,
    StateCell,
    explain,
    has_lost_finalizer,
    held,
    observed,
    summarize,
)
from workers.service.steps import ServiceSteps, attempted, ensure_failed

log = logging.getLogger(__name__)

COMPONENT = "service-controller"
BACKOFF = Backoff(first=5.0, most=60.0, jitter=0.0)  # upstream's, up to a minute
MAX_STEPS = 20  # in one reconcile; more means that another client reverts them
MOST_RETRIED = 5  # Services that are tried again when one load balancer went
REVERTED_RETRY = 60.0  # seconds until another try when that is so
MASS_DELETION_RETRY = 60.0  # seconds until another look when too many Services have vanished

_METADATA = "name", "namespace", "uid", "labels", "annotations", "finalizers"
_SERVICE: tuple[FieldPath, ...] = (
    *(("metadata", name) for name in _METADATA),  # labels for a provider
    ("metadata", "deletionTimestamp"),
    *(("spec", name) for name in SPEC_FIELDS),
    ("status", "loadBalancer"),
)

PROJECTIONS = (Projection("Service", _SERVICE), Projection("Node", NODE_FIELDS))


def new_controller(context: ControllerContext) -> Controller:
    """The service controller of this process."""
    balancers = context.provider.load_balancers
    if balancers is None:
        raise NotNeeded("the provider has no load balancers")
    return ServiceController(context, balancers)


def concurrency(settings: Settings) -> int:
    """How many Services are reconciled at the same time."""
    return settings.concurrent_service_syncs


class ServiceController:
    """Keeps one balancer for each Service that wants one.

    All work on a load balancer is the reconcile of its Service's key: creation, updates and
    deletions never overlap.
    """

    def __init__(self, context: ControllerContext, balancers: LoadBalancers) -> None:
        self._context = context
        features, privileged = balancers.supported_features, balancers.privileged_annotations
        capabilities = Capabilities.of(context.settings, features, privileged)
        if isinstance(balancers, ChecksServices):
            capabilities = replace(capabilities, check_service=balancers.check_service)
        self._capabilities = replace(capabilities, timings=context.timings)
        self._machines = NodeMachines(context, self._on_verdict)
        excludes = isinstance(balancers, ExcludesStoppedNodes) and balancers.excludes_stopped_nodes
        self._backends = BackendSet(
            context.provider.provider_ids,
            self._machines.why_not,
            partial(context.store.view, Node),
            context.timings,
            excludes,
        )
        self._states: dict[str, ServiceState] = {}
        self._node_ports, self._addresses = NodePorts(), PublishedAddresses()
        self._steps = ServiceSteps(context, balancers)
        self._chooser = balancers if isinstance(balancers, SelectsNodesByLabel) else None
        # Comparing what is most likely right leaves room for what is new.
        limit = max(1, concurrency(context.settings) // 2)
        self._checks = Slots(limit, context.queue.add)
        self._slots = NamespaceSlots(concurrency(context.settings), context.queue.add)
        self._shares = ProcessorShares(partial(context.store.count, "Node"))
        self._is_mass_deletion = False
        self._due = set[str]()  # keys of Services that are to be compared before their time
        self._writing = set[asyncio.Task[None]]()

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        """A Service's own key; none for a Node, because `run` enqueues the Services it concerns.

        The informer also brings back our own writes. Such an echo is no change: it must not cut
        short the wait after a failure. A reconcile in flight looks for changes itself.
        """
        if kind == "Service":
            service = self._service(key)
            new_ports = self._node_ports.update(key, service)
            self._give_up_at_work(key)
            is_known = self._context.queue.is_in_flight(key) or not self._is_changed(key)
            losing = self._losing(key, new_ports) if new_ports else []
            return losing if is_known else [*losing, key]
        node = self._context.store.view(Node, key)
        others = self._machines.update(key, node)
        self._backends.update(key, node)
        if others:
            self._backends.invalidate()
        return ()

    async def run(self) -> None:
        """After changes of Nodes, enqueue the Services whose balancers have other backends.

        Each of them has its turn, also when Nodes go on changing before it comes. So do those that
        have waited for Nodes.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._machines.run())
            group.create_task(self._follow_backends())

    async def _follow_backends(self) -> None:
        while True:
            await self._backends.debounced()
            for key, state in self._states.items():
                if state.backends_sent is None and state.held_since is not None:
                    self._context.queue.add(key)
                if state.backends_sent not in (None, self._backends.current()):
                    self._states[key] = replace(state, is_backend_update_due=True)
                    self._context.queue.add(key)

    def _on_verdict(self, names: Collection[str]) -> None:
        for name in names:
            self._backends.update(name, self._context.store.view(Node, name))
            self._backends.invalidate()

    def on_message(self, message: Message) -> None:
        return

    def object_ref(self, key: str) -> ObjectRef | None:
        service = self._service(key)
        return ObjectRef.of(service) if service else None

    def status(self) -> Json:
        return {
            "objects": self._context.store.count("Service"),
            "backends": len(self._backends),
            "load_balancers": sum(state.owner is not None for state in self._states.values()),
            **self._steps.totals,
            "services": summarize(self._states, time.monotonic()),
        }

    def details(self, key: str) -> Json:
        service, state = self._service(key), self._state(key)
        return explain(service, state, self._backends.current(), time.monotonic())

    async def reconcile(self, key: str) -> Result:
        service = self._service(key)
        is_urgent = self._leads_to_others(key, service)
        if (rest := self._shares.seconds_to_rest(key, is_urgent)) > 0:
            self._leave_turns(key)
            return Result("waits for others: its namespace takes long to compare", False, rest)
        if service and not service.is_being_deleted:
            await self._machines.known()  # or changes wait for the next try as well
        try:
            return await self._shares.measure(key, self._converge(key), is_urgent)
        except Refused:
            self._resync_after(key, self._context.timings.refusal_retry_period)
            raise
        finally:
            self._leave_turns(key)
            if self._is_changed(key):
                self._context.queue.add(key)

    def _leave_turns(self, key: str) -> None:
        self._checks.leave(key)
        self._slots.leave(key)

    async def _converge(self, key: str) -> Result:
        """Plan and perform until nothing is left to do, or something has to be waited for."""
        self._choose_backends(key)
        for _ in range(MAX_STEPS):
            _ranges = self._source_ranges(key)  # are read once for all who ask while they are held
            match self._next_step(key):
                case Done(message):
                    if self._state(key).refusal:
                        self._states[key] = replace(self._state(key), refusal=None)
                    if self._state(key).owner:
                        self._resync_after(key, self._context.timings.balancer_resync_period)
                    return Result(message)
                case Refuse(service, why):
                    self._remember_refusal(service, why)
                    self._context.recorder.record(ensure_failed(service, why))
                    raise Refused(why)
                case UpdateNodes() if not (
                    self._state(key).is_backend_update_due or self._backends.is_debounced
                ):
                    message = "waits until no Node has changed for a moment"
                    return Result(message, False, self._context.timings.node_debounce_limit)
                case EnsureBalancer(service) if (seconds := self._until_initialized(service)) > 0:
                    self._states[key] = held(self._state(key))
                    message = "waits for Nodes that are being initialized"
                    return Result(message, False, seconds)
                case EnsureBalancer(is_check=True) if not self._checks.take(key):
                    return Result("waits for its turn to be compared", False)
                case VerifyPublished(service) if not (
                    self._state(key).may_keep_addresses(service) or self._slots.take(key, True)
                ):
                    await self._perform(key, SetStatus(service, []))
                case action if isinstance(action, CloudCall) and not self._slots.take(
                    key, self._state(key).has_lost_node_ports
                ):
                    return Result("waits for others of its namespace", False)
                case action:
                    self._states[key] = replace(self._state(key), is_backend_update_due=False)
                    if result := await self._perform(key, action):
                        return result
        return Result("does not converge: another client reverts it", False, REVERTED_RETRY)

    def _choose_backends(self, key: str) -> None:
        """Take in which Nodes a Service wants; reads all Nodes, in the time of the namespace."""
        if self._chooser:
            service = self._service(key)
            has_one = service and service.type == "LoadBalancer"
            labels = self._chooser.selector_labels(service) if service and has_one else ()
            self._backends.choose_by(key, labels)

    def _next_step(self, key: str) -> PlannedStep:
        service, now = self._service(key), time.monotonic()
        state = observed(self._state(key), service, now, is_due=key in self._due)
        self._due.discard(key)
        state = replace(
            state,
            has_lost_node_ports=self._node_ports.has_lost(key, state.node_ports),
            contested=self._addresses.contested(service, state.sockets) if service else (),
        )
        if service or state.owner:
            self._states[key] = state
        else:
            self._states.pop(key, None)
        return plan(service, self._backends.current(), state, self._capabilities, now)

    def _leads_to_others(self, key: str, service: Service | None) -> bool:
        """Whether clients may come to whom they do not ask for, until its next step."""
        state = self._state(key)
        if self._node_ports.has_lost(key, state.node_ports):
            return True
        if not (service and service.ingress):
            return False
        contested = self._addresses.contested(service, state.sockets)
        return bool(contested) or state.asks_for_more(service)

    def _losing(self, key: str, ports: Collection[int]) -> list[str]:
        """Those whose balancers may lead to these node ports, which another Service has now."""
        states = self._states.items()
        return [it for it, state in states if it != key and not state.node_ports.isdisjoint(ports)]

    def _until_initialized(self, service: Service) -> float:
        """Seconds for which a new Service waits for Nodes; one whose balancer is begun never does.

        Made sooner it would have the fewest of them, and be changed for all others.
        """
        state, now = self._state(service.key), time.monotonic()
        if state.backends_sent is not None or service.ingress:
            return 0.0
        since = now if state.held_since is None else state.held_since
        limit = since + self._context.timings.node_initialization_limit
        return min(limit, self._backends.initialized_by()) - now

    async def _perform(self, key: str, action: Action) -> Result | None:
        """Perform one action; a result when that ends the reconcile."""
        if isinstance(action, ConfirmGone) and not self._state(key).has_lost_node_ports:
            self._check_mass_deletion()
        owner = self._state(key).owner
        before = self._states[key] = attempted(self._state(key), action)
        cell = StateCell(before)
        try:
            outcome = await self._steps.perform(cell, action)
        finally:
            # Nodes may have changed meanwhile: whether an update is due is only `run`'s to say.
            is_due = self._state(key).is_backend_update_due
            after = self._states[key] = replace(cell.state, is_backend_update_due=is_due)
            for other in self._addresses.update(key, before, after):
                self._due.add(other)
                self._context.queue.add(other)
        if after.sockets - before.sockets:
            self._enqueue_contested(key)
        had_no_room = before.refusal is not None and before.refusal.is_quota_exceeded
        is_freed = isinstance(action, DeleteBalancer) and (owner or action.service.ingress)
        if is_freed or (had_no_room and not after.refusal):
            self._retry_for_quota()
        return outcome

    def _give_up_at_work(self, key: str) -> None:
        """Take from the status of a Service at work what leads others' clients to it by now, as its
        call may take minutes: what is planned after that may do so too late.
        """
        service, state, queue = self._service(key), self._state(key), self._context.queue
        if not (service and service.ingress and (queue.is_in_flight(key) or key in queue.parked)):
            return
        contested = self._addresses.contested(service, state.sockets)
        left = [entry for entry in service.ingress if entry.get("ip") not in contested]
        left = [] if state.asks_for_more(service) else left
        if left != service.ingress and is_of_our_class(service, self._capabilities.classes):
            self._writing.add(start_task(self._give_up(service, left), self._writing.discard))

    async def _give_up(self, service: Service, left: list[Json]) -> None:
        with suppress(KubernetesError, Unreachable, CloudError, NotLeading):
            answer = await self._context.performer.perform(patch_for(SetStatus(service, left)))
            self._context.store.wrote("Service", service.key, answer)

    def _enqueue_contested(self, key: str) -> None:
        """Those that asked for what this one serves now, at an address of both."""
        for other in self._addresses.sharing(key):
            state = self._state(other)
            if state.planned and self._addresses.contested(state.planned, state.sockets):
                self._context.queue.add(other)
                self._give_up_at_work(other)

    def _remember_refusal(self, service: Service, why: str) -> None:
        """What the plan refuses is shown like what the cloud does."""
        state = self._state(service.key)
        if state.refusal is None or state.refusal.why != why:
            spec = relevant_spec(service)
            refusal = Refusal(spec, self._backends.current(), time.monotonic(), why)
            self._states[service.key] = replace(state, refusal=refusal)

    def _retry_for_quota(self) -> None:
        """There may be room for one more: of some namespaces the Service that had none for longest
        has its turn, as what one of them asks for may never have room.
        """
        refused = {key: state.refusal for key, state in self._states.items() if state.refusal}
        lacking = [key for key, refusal in refused.items() if refusal.is_quota_exceeded]
        first = dict[str, str]()
        for key in sorted(lacking, key=lambda key: refused[key].at):
            first.setdefault(namespace_of(key), key)
        for key in islice(first.values(), MOST_RETRIED):
            refusal = replace(refused[key], at=float("-inf"))
            self._states[key] = replace(self._states[key], refusal=refusal)
            self._context.queue.add(key)

    def _check_mass_deletion(self) -> None:
        """Raise `RetryAfter` when so many Services vanished that something else is wrong."""
        owners = {key: state.owner for key, state in self._states.items() if state.owner}
        missing = [
            key
            for key, owner in owners.items()
            if not owner.is_being_deleted and not self._context.store.has("Service", key)
            if not has_lost_finalizer(self._states[key], time.monotonic())
        ]
        why = mass_deletion_reason(missing, owners)
        if why and not self._is_mass_deletion:
            log.error("load balancers kept", extra={"why": why})
        self._is_mass_deletion = bool(why)
        if why:
            raise RetryAfter(why, MASS_DELETION_RETRY)

    def _state(self, key: str) -> ServiceState:
        return self._states.get(key, ServiceState())

    def _is_changed(self, key: str) -> bool:
        """Whether the Service is not what was last planned for."""
        return self._service(key) != self._state(key).planned

    def _resync_after(self, key: str, seconds: float) -> None:
        """For what changes in the cloud without a word; spread, so that not all come together."""
        self._context.queue.add_after(key, seconds * random.uniform(1.0, 1.2))

    def _source_ranges(self, key: str) -> object:
        service = self._service(key)
        with suppress(Refused):
            if service and wants_balancer(service, self._capabilities.classes):
                return service.source_ranges()
        return None

    def _service(self, key: str) -> Service | None:
        service = self._context.store.view(Service, key)
        return service and as_proxied_by(service, self._context.settings.service_proxy_names)
