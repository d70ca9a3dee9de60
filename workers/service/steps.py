"""Performing the actions of a plan: calls of the cloud, writes to Kubernetes, Events.

Writes are JSON patches, and Events have upstream's words.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import assert_never

from ccm import metrics
from ccm.cloud.gate import call, expecting_balancer, noted_writes
from ccm.cloud.interface import LoadBalancers
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
    Unanswered,
)
from ccm.kube.client import about
from ccm.kube.events import Event, ObjectRef
from ccm.log import seconds_since
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, mapping
from ccm.model.service import Service, relevant_spec
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
    patch_for,
)
from workers.service.state import (
    LastApplied,
    Refusal,
    ServiceState,
    StateCell,
    deleted,
    ensured,
    node_ports_of,
)
from workers.service.withdrawal import STALE_LIST_RETRY, Withdrawal

log = logging.getLogger(__name__)

MAX_NODE_NAMES = 20  # in one message

STALE_CACHE_RETRY = 5.0  # seconds until another look at a Service that only our cache lacks

Outcome = Result | None  # the reconcile ends, unless None


def attempted(state: ServiceState, action: Action) -> ServiceState:
    """What is known as soon as `action` is tried, whatever comes of it."""
    match action:
        case EnsureBalancer(service, backends):
            owner = state.owner or service
            ports = state.node_ports | node_ports_of(service)
            if applied := state.last_applied:
                served = applied.served | service.proxied
                applied = replace(applied, relevant_spec=None, served=served)
            state = replace(state, last_applied=applied, owner=owner, is_deleted=False)
            return replace(state, backends_sent=backends, node_ports=ports)
        case AddFinalizer():
            return replace(state, finalizer_added_at=time.monotonic())
        case UpdateNodes(_, backends):
            return replace(state, backends_sent=backends)
        case SetStatus() if state.last_applied:
            return replace(state, last_applied=replace(state.last_applied, is_status_tried=True))
        case VerifyPublished():
            return replace(state, is_overtaken=False)
        case DeleteBalancer(service):  # may go on in the cloud when it is not wanted any more
            return replace(state, owner=state.owner or service, last_applied=None)
    return state


class ServiceSteps:
    """Performs actions, and learns of the Service what comes of them."""

    def __init__(self, context: ControllerContext, balancers: LoadBalancers) -> None:
        self._context, self._balancers = context, balancers
        self._record = context.recorder.record
        self._turns = WriteTurns(context.executor, context.queue)
        self._withdrawal = Withdrawal(balancers, self._write)
        self.totals = {"ensured": 0, "backend_updates": 0, "deleted": 0}

    async def perform(self, cell: StateCell, action: Action) -> Outcome:
        """Perform `action`, which is `attempted`; what is learned before an error stays known."""
        match action:
            case AddFinalizer() | RemoveFinalizer() | SetStatus():
                await self._write(cell, action)
            case EnsureBalancer():
                await self._ensure(cell, action)
            case UpdateNodes():
                await self._update_nodes(cell, action)
            case DeleteBalancer():
                await self._delete(cell, action)
            case ConfirmGone(service):
                await self._confirm_gone(service)
                cell.state = replace(cell.state, is_owner_gone=True)
            case FindBalancer(service):
                get, owner = self._balancers.get, service.namespace
                if not await call(Priority.LB_DELETE, get, service, owner=owner):
                    return Result(left_alone(service))
                cell.state = replace(cell.state, owner=service)
            case VerifyPublished(service):
                is_open = cell.state.is_unsettled and not cell.state.may_keep_addresses(service)
                with suppress(Refused):  # a provider that goes by what the Service asks for
                    await self._withdrawal.verify(cell, service, may_ask=True)
                cell.state = replace(cell.state, read_at=time.monotonic(), is_unsettled=is_open)
            case Forget():
                cell.state = ServiceState(planned=cell.state.planned)
            case _:
                assert_never(action)
        return None

    async def _write(self, cell: StateCell, write: ServiceWrite) -> None:
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
        applied = cell.state.last_applied
        if isinstance(write, SetStatus) and applied and write.ingress == applied.ingress:
            stored = Service(answer).ingress
            if _places(stored) == _places(write.ingress):  # else a proxy kept it from before
                applied = replace(applied, stored_ingress=stored, has_annotated=True)
        cell.state = replace(cell.state, last_applied=applied)

    async def _confirm_gone(self, service: Service) -> None:
        """Return when the API server does not have this very Service; else raise."""
        try:
            path = service.path
            found = about(path, await self._context.performer.kube.get(path))
        except KubernetesError as error:
            if error.is_gone:
                return
            raise
        if mapping(found.get("metadata")).get("uid") == service.uid:
            raise RetryAfter("the API server has it, our cache has not", STALE_CACHE_RETRY)

    async def _ensure(self, cell: StateCell, action: EnsureBalancer) -> None:
        service, backends, before = action.service, action.backends, cell.state
        if not action.is_check:
            self._record(normal(service, "EnsuringLoadBalancer", "Ensuring load balancer"))
        if not backends.names:
            self._record(no_backends(service))
        asked = relevant_spec(service, before.own_annotations)
        balancer: Balancer | None = None
        began = time.monotonic()
        try:
            with self._noted(cell) as calls, suppress(ImplementedElsewhere):
                balancer = await self._call_ensure(cell, action)
        except Refused as error:
            kinds = isinstance(error, NoRoom), isinstance(error, TakenByAnother)
            if kinds[1] and service.ingress and not before.is_doubted:
                cell.state = replace(cell.state, is_doubted=True)
                wait = RetryAfter(str(error), STALE_LIST_RETRY)
                await self._after_failure(cell, service, wait, has_written=bool(calls))
                raise wait from error
            refusal = Refusal(asked, backends, time.monotonic(), str(error), *kinds)
            cell.state = replace(cell.state, refusal=refusal, is_doubted=False)
            return
        except CloudError as error:
            await self._after_failure(cell, service, error, has_written=bool(calls))
            raise
        cell.state = replace(cell.state, is_missed=False, is_doubted=False)
        if not balancer:
            await self._withdrawal.verify_handed_over(cell, service)
        cell.state = ensured(cell.state, service, backends, balancer)
        self.totals["ensured"] += 1
        self._context.counters.count(metrics.BALANCERS_ENSURED)
        if not balancer:
            return
        warnings = cell.state.warnings
        if warnings and warnings != before.warnings:
            self._record(without_effect(service, warnings))
        if not action.is_check or before.has_failed:
            self._record(normal(service, "EnsuredLoadBalancer", "Ensured load balancer"))
        is_new = not (before.last_applied or service.ingress)
        if calls or (is_new and not action.is_check):
            does = "load balancer created" if is_new else "load balancer updated"
            what = {
                "addresses": [entry.ip or entry.hostname for entry in balancer.ingress],
                "backends": len(backends.names),
                "calls": sorted({*calls}),
            }
            _log_balancer(does, service, began, **what)

    async def _call_ensure(self, cell: StateCell, action: EnsureBalancer) -> Balancer:
        service = action.service
        priority = Priority.REFRESH if action.is_check else Priority.LB_ENSURE
        ensure, owner = self._balancers.ensure, service.namespace
        is_expected = bool(service.ingress) and not cell.state.is_missed
        try:
            with expecting_balancer(is_expected):
                return await call(priority, ensure, service, action.backends.nodes, owner=owner)
        except NotShown:
            cell.state = replace(cell.state, is_missed=True)
            raise

    async def _update_nodes(self, cell: StateCell, action: UpdateNodes) -> None:
        service, backends, now = action.service, action.backends, time.monotonic()
        counters, applied = self._context.counters, cell.state.last_applied
        owner = cell.state.owner or service
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
            served = service.proxied
            applied = LastApplied(None, backends, now, is_refused=True, served=served)
            cell.state = replace(cell.state, owner=owner, last_applied=applied, is_unsettled=True)
            return
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
            replace(
                applied,
                backends=backends,
                is_lacking=False,
                served=applied.served & service.proxied,
            )
            if applied
            else LastApplied(None, backends, now, served=service.proxied)
        )
        cell.state = replace(cell.state, owner=owner, last_applied=applied)

    async def _delete(self, cell: StateCell, action: DeleteBalancer) -> None:
        service, began = action.service, time.monotonic()
        self._record(normal(service, "DeletingLoadBalancer", "Deleting load balancer"))
        try:
            if await self._delete_parts(cell, service):  # one answer may have lacked some
                await self._delete_parts(cell, service)
        except CloudError as error:
            self._record_failure(error, delete_failed(service, action.is_orphan, error))
            if not isinstance(error, RetryAfter):
                is_ours = is_of_our_class(service, self._context.settings.load_balancer_classes)
                await self._withdrawal.withdraw(cell, service, is_ours and not action.is_orphan)
            raise
        self._withdrawal.verify_missing(cell, service)
        self.totals["deleted"] += 1
        self._context.counters.count(metrics.BALANCERS_DELETED)
        self._record(normal(service, "DeletedLoadBalancer", "Deleted load balancer"))
        _log_balancer("load balancer deleted", service, began)
        cell.state = deleted(cell.state)

    async def _delete_parts(self, cell: StateCell, service: Service) -> bool:
        """Delete what the cloud shows of a load balancer; whether that was anything."""
        delete, owner = self._balancers.delete, service.namespace
        with suppress(ImplementedElsewhere), noted_writes() as calls:
            try:
                await call(Priority.LB_DELETE, delete, service, owner=owner)
            finally:
                if calls:
                    cell.state = replace(
                        cell.state, is_unsettled=True, written_at=None, is_missed=True
                    )
        return bool(calls)

    async def _after_failure(
        self, cell: StateCell, service: Service, error: CloudError, *, has_written: bool
    ) -> None:
        self._record_failure(error, ensure_failed(service, error))
        await self._withdrawal.after_failure(cell, service, error, has_written=has_written)

    @contextmanager
    def _noted(self, cell: StateCell) -> Iterator[list[str]]:
        """The writes of a creation or change; what failed may have been performed as well."""
        with noted_writes() as calls:
            may_be_written = False
            try:
                yield calls
            except CloudError as error:
                may_be_written = type(error) in (CloudError, Unanswered)
                raise
            finally:
                if calls or may_be_written:
                    now = time.monotonic()
                    cell.state = replace(cell.state, is_unsettled=True, written_at=now)

    def _record_failure(self, error: CloudError, event: Event) -> None:
        """Work in progress, as a throttled call, is no failure."""
        if not isinstance(error, RetryAfter):
            self._record(event)


def _places(ingress: Sequence[Json]) -> list[tuple[object, object]]:
    """What an API server keeps of a status as it is."""
    return [(entry.get("ip"), entry.get("hostname")) for entry in ingress]


def _log_balancer(does: str, service: Service, began: float, **fields: object) -> None:
    log.info(does, extra={"service": service.key, **fields, **seconds_since(began)})


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
