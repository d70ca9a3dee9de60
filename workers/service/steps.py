"""Performing the actions of a plan: calls of the cloud, writes to Kubernetes, Events.

Writes are JSON patches, and Events have upstream's words.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import assert_never
from urllib.parse import quote

from ccm import metrics
from ccm.cloud.gate import call, expecting_balancer, noted_writes
from ccm.cloud.interface import LoadBalancers, SharesBackends
from ccm.decide.budget import Priority
from ccm.errors import (
    CloudError,
    ImplementedElsewhere,
    KubernetesError,
    NoRoom,
    NotShown,
    Refused,
    RetryAfter,
    TakenByAnother,
)
from ccm.kube.client import about
from ccm.kube.events import Event, ObjectRef
from ccm.log import seconds_since
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, annotation_path, expect, expect_same, mapping, replace_seen
from ccm.model.service import FINALIZER, UPSTREAM_FINALIZERS, Service
from ccm.model.writes import Patch
from workers.controller import ControllerContext, Result
from workers.executor import WriteTurns
from workers.service.backends import Backends
from workers.service.plan import (
    Action,
    AddFinalizer,
    ConfirmGone,
    DeleteBalancer,
    EnsureBalancer,
    FindBalancer,
    Forget,
    RemoveFinalizer,
    ServiceWrite,
    SetStatus,
    UpdateNodes,
    VerifyPublished,
    is_of_our_class,
    left_alone,
    relevant_spec,
    still_held,
)
from workers.service.state import LastApplied, Refusal, ServiceState, node_ports_of

log = logging.getLogger(__name__)

MAX_NODE_NAMES = 20  # in one message
MAX_WARNINGS = 50  # of one load balancer that are kept: a tenant may cause one a letter

STALE_LIST = 20.0  # seconds after a write in which a list of the cloud may be older than it
STALE_LIST_RETRY = 2.0  # seconds until a load balancer that such a list lacks is deleted again
ADDRESS_RETRY = 5.0  # seconds until another look at a load balancer without an address
STALE_CACHE_RETRY = 5.0  # seconds until another look at a Service that only our cache lacks

Outcome = Result | None  # the reconcile ends, unless None


def attempted(state: ServiceState, action: Action) -> ServiceState:
    """What is known as soon as `action` is tried, whatever comes of it."""
    match action:
        case EnsureBalancer(service, backends):
            owner = state.owner or service
            ports = state.node_ports | node_ports_of(service)
            applied = state.last_applied and replace(state.last_applied, relevant_spec=None)
            state = replace(state, last_applied=applied, owner=owner, is_deleted=False)
            return replace(state, backends_sent=backends, node_ports=ports, is_unsettled=True)
        case AddFinalizer():
            return replace(state, finalizer_added_at=time.monotonic())
        case UpdateNodes(_, backends):
            return replace(state, backends_sent=backends)
        case SetStatus() if state.last_applied:
            return replace(state, last_applied=replace(state.last_applied, is_status_tried=True))
        case DeleteBalancer(service):  # may go on in the cloud when it is not wanted any more
            return replace(state, owner=state.owner or service, last_applied=None)
    return state


class ServiceSteps:
    """Performs actions. It takes what is known of a Service, returns what is known next."""

    def __init__(self, context: ControllerContext, balancers: LoadBalancers) -> None:
        self._context, self._balancers = context, balancers
        self._record = context.recorder.record
        self._turns = WriteTurns(context.executor, context.queue)
        self._written: dict[str, float] = {}  # UID of a Service to our last write of its balancer
        self._sought = set[str]()  # UIDs of Services whose load balancer was looked for in vain
        self._taken = set[str]()  # UIDs of Services of which one answer gives something to another
        self._failed = set[str]()  # UIDs of Services whose last Event says that a sync failed
        self._verified = set[str]()  # UIDs of Services whose addresses no write took since
        self.totals = {"ensured": 0, "backend_updates": 0, "deleted": 0}

    async def perform(self, state: ServiceState, action: Action) -> tuple[ServiceState, Outcome]:
        """Perform `action` on a state that is `attempted`; an error raised leaves it as it is."""
        match action:
            case AddFinalizer() | RemoveFinalizer() | SetStatus():
                return await self._write(state, action), None
            case EnsureBalancer():
                return await self._ensure(state, action), None
            case UpdateNodes():
                return await self._update_nodes(state, action), None
            case DeleteBalancer():
                return await self._delete(state, action), None
            case ConfirmGone(service):
                await self._confirm_gone(service)
                return replace(state, is_owner_gone=True), None
            case FindBalancer(service):
                if await call(
                    Priority.LB_DELETE, self._balancers.get, service, owner=service.namespace
                ):
                    return replace(state, owner=service), None
                return state, Result(left_alone(service))
            case VerifyPublished(service):
                with suppress(Refused):  # a provider that goes by what the Service asks for
                    state = await self._verify(state, service)
                return replace(state, is_unsettled=False), None
            case Forget():
                uid = state.owner.uid if state.owner else ""
                self._failed.discard(uid)
                self._sought.discard(uid)
                self._taken.discard(uid)
                self._verified.discard(uid)
                return ServiceState(planned=state.planned), None
            case _:
                assert_never(action)

    async def _write(self, state: ServiceState, write: ServiceWrite) -> ServiceState:
        try:
            patch = patch_for(write)
            perform = partial(self._context.performer.perform, patch)
            if patch.cannot_wait:  # an address may be another's by the time of its turn
                answer = await perform()
            else:
                service = write.service
                answer = await self._turns.write(service.namespace, service.key, perform)
        except KubernetesError as error:
            if not (error.is_gone or error.is_race or error.is_refusal):
                why = write_failed(write, error)
                self._record(sync_failed(write.service, why))
            raise
        self._context.store.wrote("Service", write.service.key, answer)
        applied = state.last_applied
        if isinstance(write, SetStatus) and applied and write.ingress == applied.ingress:
            stored = Service(answer).ingress
            applied = replace(applied, stored_ingress=stored, has_annotated=True)
        return replace(state, last_applied=applied)

    async def _confirm_gone(self, service: Service) -> None:
        """Return when the API server does not have this very Service; else raise."""
        try:
            path = path_of(service)
            found = about(path, await self._context.performer.kube.get(path))
        except KubernetesError as error:
            if error.is_gone:
                return
            raise
        if mapping(found.get("metadata")).get("uid") == service.uid:
            raise RetryAfter("the API server has it, our cache has not", STALE_CACHE_RETRY)

    async def _ensure(self, state: ServiceState, action: EnsureBalancer) -> ServiceState:
        service, backends = action.service, action.backends
        if not action.is_check:
            self._record(normal(service, "EnsuringLoadBalancer", "Ensuring load balancer"))
        if not backends.names:
            self._record(no_backends(service))
        asked = relevant_spec(service, state.own_annotations)
        priority = Priority.REFRESH if action.is_check else Priority.LB_ENSURE
        balancer: Balancer | None = None
        began = time.monotonic()
        is_expected = bool(service.ingress) and service.uid not in self._sought
        try:
            with (
                self._written_by(service) as calls,
                expecting_balancer(is_expected),
                suppress(ImplementedElsewhere),
            ):
                balancer = await call(
                    priority,
                    self._balancers.ensure,
                    service,
                    backends.nodes,
                    owner=service.namespace,
                )
        except NotShown:
            self._sought.add(service.uid)
            raise
        except Refused as error:
            kinds = isinstance(error, NoRoom), isinstance(error, TakenByAnother)
            if kinds[1] and service.ingress and service.uid not in self._taken:
                self._taken.add(service.uid)  # one answer may be wrong, and what it has would go
                raise RetryAfter(str(error), STALE_LIST_RETRY) from error
            self._taken.discard(service.uid)
            refusal = Refusal(asked, backends, time.monotonic(), str(error), *kinds)
            return replace(state, refusal=refusal)
        except CloudError as error:
            await self._after_failure(state, service, error)
            raise
        self._sought.discard(service.uid)
        self._taken.discard(service.uid)
        ingress = ingress_of(balancer) if balancer else None
        self._verified.add(service.uid)
        is_news = not action.is_check or service.uid in self._failed
        self._failed.discard(service.uid)
        self.totals["ensured"] += 1
        self._context.counters.count(metrics.BALANCERS_ENSURED)
        warnings = balancer.warnings[:MAX_WARNINGS] if balancer else ()
        if warnings and warnings != state.warnings:
            self._record(without_effect(service, warnings))
        if balancer and is_news:
            self._record(normal(service, "EnsuredLoadBalancer", "Ensured load balancer"))
        is_new = not (state.last_applied or service.ingress)
        if balancer and (calls or (is_new and not action.is_check)):
            does = "load balancer created" if is_new else "load balancer updated"
            addresses = [entry.ip or entry.hostname for entry in balancer.ingress]
            what = {
                "addresses": addresses,
                "backends": len(backends.names),
                "calls": sorted({*calls}),
            }
            _log_balancer(does, service, began, **what)
        name, annotations = (balancer.name, balancer.annotations) if balancer else ("", {})
        asked = relevant_spec(service, annotations)
        now = time.monotonic()
        applied = LastApplied(asked, backends, now, ingress, annotations=annotations, name=name)
        applied = replace(applied, is_lacking=bool(balancer and balancer.lacking))
        ports = node_ports_of(service) if balancer else state.node_ports
        return replace(
            state,
            last_applied=applied,
            node_ports=ports,
            sockets=service.sockets if balancer else frozenset(),
            is_shared=bool(balancer and balancer.is_shared),
            refusal=None,
            warnings=warnings,
            is_unsettled=False,
        )

    async def _update_nodes(self, state: ServiceState, action: UpdateNodes) -> ServiceState:
        service, backends, now = action.service, action.backends, time.monotonic()
        counters, applied = self._context.counters, state.last_applied
        owner = state.owner or service
        counters.count(metrics.HOST_UPDATES)
        is_ours = False
        try:
            with suppress(ImplementedElsewhere):
                await call(
                    Priority.LB_ENSURE,
                    self._balancers.update_nodes,
                    service,
                    backends.nodes,
                    owner=service.namespace,
                )
                is_ours = True
        except Refused as error:  # no load balancer, or no room: what is planned next is reported
            log.debug("new backends refused", extra={"key": service.key, "why": str(error)})
            refused = LastApplied(None, backends, now, is_refused=True)
            return replace(state, owner=owner, last_applied=refused, is_unsettled=True)
        except CloudError as error:
            if not isinstance(error, RetryAfter):
                counters.count(metrics.HOST_UPDATES_FAILED)
            self._record_failure(error, update_failed(service, backends, error))
            raise
        self.totals["backend_updates"] += 1
        counters.observe(metrics.HOST_UPDATE_SECONDS, seconds=time.monotonic() - now)
        if is_ours and applied:
            message = "Updated load balancer with new hosts"
            updated = normal(service, "UpdatedLoadBalancer", message)
            self._record(updated if backends.names else no_backends(service))
            _log_balancer(
                "load balancer has new backends", service, now, backends=len(backends.names)
            )
        applied = (
            replace(applied, backends=backends, is_lacking=False)
            if applied
            else LastApplied(None, backends, now)
        )
        return replace(state, owner=owner, last_applied=applied)

    async def _delete(self, state: ServiceState, action: DeleteBalancer) -> ServiceState:
        service, began = action.service, time.monotonic()
        self._record(normal(service, "DeletingLoadBalancer", "Deleting load balancer"))
        try:
            if await self._delete_parts(service):  # one answer may have lacked some: an open port
                await self._delete_parts(service)
        except CloudError as error:
            self._record_failure(error, delete_failed(service, action.is_orphan, error))
            if not isinstance(error, RetryAfter):
                is_ours = is_of_our_class(service, self._context.settings.load_balancer_classes)
                await self._withdraw(state, service, is_ours and not action.is_orphan)
            raise
        self._verify_found(service)
        self.totals["deleted"] += 1
        self._context.counters.count(metrics.BALANCERS_DELETED)
        self._record(normal(service, "DeletedLoadBalancer", "Deleted load balancer"))
        _log_balancer("load balancer deleted", service, began)
        is_taken = state.refusal is not None and state.refusal.is_taken
        refusal = state.refusal if state.has_lost_node_ports or is_taken else None
        return replace(
            state,
            last_applied=None,
            node_ports=frozenset(),
            sockets=frozenset(),
            is_shared=False,
            refusal=refusal,
            is_deleted=True,
        )

    async def _delete_parts(self, service: Service) -> bool:
        """Delete what the cloud shows of a load balancer; whether that was anything."""
        with suppress(ImplementedElsewhere), noted_writes() as calls:
            try:
                await call(
                    Priority.LB_DELETE, self._balancers.delete, service, owner=service.namespace
                )
            finally:
                if calls:
                    self._verified.discard(service.uid)
                    self._written.pop(service.uid, None)
                    self._sought.add(service.uid)
        return bool(calls)

    async def _after_failure(
        self, state: ServiceState, service: Service, error: CloudError
    ) -> None:
        """What follows a creation or change that failed; nothing where it only waits."""
        self._record_failure(error, ensure_failed(service, error))
        if isinstance(error, RetryAfter):
            return
        self._failed.add(service.uid)
        await self._withdraw(state, service)

    async def _withdraw(
        self, state: ServiceState, service: Service, has_status: bool = True
    ) -> None:
        """Take the backends from what cannot be changed or deleted, and leads to another Service;
        from a status that is ours, the addresses that it gave up.

        The next change that succeeds gives them back.
        """
        priority, balancers, owner = Priority.LB_ENSURE, self._balancers, service.namespace
        if state.has_lost_node_ports:
            with suppress(CloudError):
                if isinstance(balancers, SharesBackends):
                    await call(priority, balancers.withdraw, service, owner=owner)
                else:
                    await call(priority, balancers.update_nodes, service, (), owner=owner)
        is_right = service.uid in self._verified and state.may_keep_addresses(service)
        if has_status and service.ingress and not is_right:
            with suppress(CloudError):
                await self._verify(state, service)

    async def _verify(self, state: ServiceState, service: Service) -> ServiceState:
        """Take addresses from the status that the load balancer has no more; one answer may lack
        them. Whatever has them next would lose clients to the Service.
        """
        get, owner = self._balancers.get, service.namespace
        if not state.may_keep_addresses(service):
            return await self._write(state, SetStatus(service, []))
        for _ in range(2):
            found = await call(Priority.LB_ENSURE, get, service, owner=owner)
            left = still_held(service, ingress_of(found) if found else [])
            if left == service.ingress:
                break
        else:
            state = await self._write(state, SetStatus(service, left))
        self._verified.add(service.uid)
        return state

    @contextmanager
    def _written_by(self, service: Service) -> Iterator[list[str]]:
        """The writes of a creation or change; what failed may have been performed as well."""
        with noted_writes() as calls:
            may_be_written = False
            try:
                yield calls
            except CloudError as error:
                may_be_written = type(error) is CloudError
                raise
            finally:
                if calls:
                    self._verified.discard(service.uid)
                if calls or may_be_written:
                    self._written[service.uid] = time.monotonic()

    def _verify_found(self, service: Service) -> None:
        """Raise while a deletion that wrote nothing may have gone by a list from before.

        One list may lack what is published: it is looked for once more.
        """
        age = time.monotonic() - self._written.get(service.uid, float("-inf"))
        if age < STALE_LIST:
            why = f"the cloud does not show the load balancer that was written {age:.0f} s ago"
            raise RetryAfter(why, STALE_LIST_RETRY)
        if service.ingress and service.uid not in self._sought:
            self._sought.add(service.uid)
            why = "the cloud does not show the load balancer that is published"
            raise RetryAfter(why, STALE_LIST_RETRY)
        self._written.pop(service.uid, None)
        self._sought.add(service.uid)  # what is wanted again is made at once

    def _record_failure(self, error: CloudError, event: Event) -> None:
        """Work in progress, as a throttled call, is no failure."""
        if not isinstance(error, RetryAfter):
            self._record(event)


def _log_balancer(does: str, service: Service, began: float, **fields: object) -> None:
    log.info(does, extra={"service": service.key, **fields, **seconds_since(began)})


def _gives_up_addresses(write: ServiceWrite) -> bool:
    if not isinstance(write, SetStatus):
        return False
    listed, held = (
        {it.get("ip") for it in some} for some in (write.service.ingress, write.ingress)
    )
    return not listed <= {None, *held}


def patch_for(write: ServiceWrite) -> Patch:
    """The write as a JSON patch; it fails with 422 when the Service is not what it was.

    Finalizers are written through the status, too: then no right to change a spec is needed.
    """
    service = write.service
    listed = service.meta.get("finalizers")
    change: Sequence[Json]
    match write:
        case AddFinalizer():
            wanted = [*service.finalizers, FINALIZER]
            change = replace_seen("/metadata/finalizers", listed, wanted)
        case RemoveFinalizer():
            gone = (FINALIZER, *UPSTREAM_FINALIZERS)
            left = [finalizer for finalizer in service.finalizers if finalizer not in gone]
            decided_on = expect("/spec/type", service.spec.get("type"))
            change = decided_on, *replace_seen("/metadata/finalizers", listed, left or None)
        case SetStatus(_, ingress, annotations):
            status = {"ingress": ingress} if ingress else {}
            seen = replace_seen("/status/loadBalancer", service.load_balancer, status)
            decided_on = expect("/spec/loadBalancerClass", service.load_balancer_class)
            change = (decided_on, *seen, *_annotate(service, annotations))
        case _:
            assert_never(write)
    operations = expect_same(service), *change
    path, cannot_wait = f"{path_of(service)}/status", _gives_up_addresses(write)
    return Patch(path, operations, cannot_wait=cannot_wait)


def _annotate(service: Service, annotations: Mapping[str, str]) -> Sequence[Json]:
    """Those of others stay, whatever they are meanwhile."""
    if annotations and not service.annotations:
        return replace_seen("/metadata/annotations", service.meta.get("annotations"), annotations)
    return [
        {"op": "add", "path": annotation_path(name), "value": value}
        for name, value in annotations.items()
    ]


def path_of(service: Service) -> str:
    """Where the API server has it."""
    return f"/api/v1/namespaces/{quote(service.namespace)}/services/{quote(service.name)}"


def ingress_of(balancer: Balancer) -> list[Json]:
    """`status.loadBalancer.ingress` for its addresses; `ipMode` goes with an IP only.

    Raises `RetryAfter` while it has none: what the status has stays there.
    """
    if not balancer.ingress:
        raise RetryAfter(f"load balancer {balancer.name} has no address yet", ADDRESS_RETRY)
    return [
        {
            **({"ip": entry.ip} if entry.ip else {}),
            **({"hostname": entry.hostname} if entry.hostname else {}),
            **({"ipMode": str(entry.ip_mode)} if entry.ip and entry.ip_mode else {}),
        }
        for entry in balancer.ingress
    ]


def normal(service: Service, reason: str, message: str) -> Event:
    """An Event of what we do."""
    return Event(ObjectRef.of(service), "Normal", reason, message)


def warning(service: Service, reason: str, message: str) -> Event:
    """An Event of what someone should know."""
    return Event(ObjectRef.of(service), "Warning", reason, message)


def no_backends(service: Service) -> Event:
    """The balancer has no backends."""
    message = "There are no available nodes for LoadBalancer"
    return warning(service, "UnAvailableLoadBalancer", message)


def without_effect(service: Service, warnings: Sequence[str]) -> Event:
    """The balancer is there, without some of what the Service asks for."""
    return warning(service, "LoadBalancerWarning", "; ".join(warnings))


def sync_failed(service: Service, error: str) -> Event:
    """A reconcile failed."""
    return warning(service, "SyncLoadBalancerFailed", f"Error syncing load balancer: {error}")


def ensure_failed(service: Service, error: Exception | str) -> Event:
    """The balancer was not made or not changed, or what it should be is refused."""
    return sync_failed(service, f"failed to ensure load balancer: {error}")


def delete_failed(service: Service, is_orphan: bool, error: Exception) -> Event:
    """The balancer was not deleted; `is_orphan` when the Service has gone."""
    if not is_orphan:
        return sync_failed(service, f"failed to delete load balancer: {error}")
    return warning(service, "DeleteLoadBalancerFailed", f"Error deleting load balancer: {error}")


def write_failed(write: ServiceWrite, error: Exception) -> str:
    """What to say of a write that failed."""
    match write:
        case AddFinalizer():
            return f"failed to add load balancer cleanup finalizer: {error}"
        case RemoveFinalizer():
            return f"failed to remove load balancer cleanup finalizer: {error}"
        case SetStatus():
            return f"failed to update load balancer status: {error}"


def update_failed(service: Service, backends: Backends, error: Exception) -> Event:
    """An update of the backends failed."""
    names, more = backends.names[:MAX_NODE_NAMES], len(backends.names) - MAX_NODE_NAMES
    shown = " ".join([*names, f"<{more} more>"] if more > 0 else names)
    message = (
        f"Error updating load balancer with new hosts [{shown}] "
        f"[node names limited, total number of nodes: {len(backends.names)}], error: {error}"
    )
    return warning(service, "UpdateLoadBalancerFailed", message)
