"""The next step for one Service in each state that it can be in, as a pure decision."""

from dataclasses import replace

import pytest

from ccm.model.objects import Json
from ccm.model.service import Feature, Service, relevant_spec
from ccm.settings import Settings
from workers.service.backends import Backends
from workers.service.plan import (
    AddFinalizer,
    Capabilities,
    ConfirmGone,
    DeleteBalancer,
    Done,
    EnsureBalancer,
    FindBalancer,
    Forget,
    PlannedStep,
    Refuse,
    RemoveFinalizer,
    SetStatus,
    UpdateNodes,
    mass_deletion_reason,
    plan,
)
from workers.service.state import LastApplied, Refusal, ServiceState
from workers.timings import Timings

from .objects import (
    annotated,
    being_deleted,
    finalized,
    service,
    spec,
    typed,
    with_status,
    with_uid,
)

NOW = 10_000.0
IDENTITY = ("n1", "fake://n1", 1, "", False)
BACKENDS, OTHERS = Backends(("n1",), frozenset([IDENTITY])), Backends((), frozenset())
TIMINGS = Timings()
OURS = Capabilities(("ours",), list(Feature), timings=TIMINGS)
INGRESS: list[Json] = [{"ip": "192.0.2.1"}]
SHOWN = {"cloud.example/address": "192.0.2.1"}
NORMALIZED: list[Json] = [{"ip": "192.0.2.1", "ipMode": "VIP", "ports": []}]
PLAIN, KEPT = service(), service(finalized)
SERVED = service(finalized, with_status("192.0.2.1"))
THEIRS = spec(loadBalancerClass="theirs")
GONE_OTHERS = service(finalized, THEIRS, being_deleted)
LEAVING, CHANGED = service(finalized, being_deleted), service(finalized, typed("ClusterIP"))
APPLIED = LastApplied(relevant_spec(KEPT), BACKENDS, NOW, INGRESS)
STALE = replace(APPLIED, at=NOW - TIMINGS.balancer_resync_period)
REFUSAL = Refusal(relevant_spec(KEPT), BACKENDS, NOW - 1.0, "no quota is left")
ASKED_AGAIN = replace(REFUSAL, at=NOW - TIMINGS.refusal_retry_period)


def owned(known: Service = KEPT, **more: object) -> ServiceState:
    return replace(ServiceState(owner=known), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "state", "expected"),
    [
        pytest.param(None, ServiceState(), Done("not found"), id="never-seen"),
        pytest.param(None, owned(), ConfirmGone(KEPT), id="vanished"),
        pytest.param(
            None, owned(is_owner_gone=True), DeleteBalancer(KEPT, is_orphan=True), id="gone"
        ),
        pytest.param(None, owned(is_deleted=True), Forget(), id="gone-with-its-balancer"),
        pytest.param(
            service(with_uid("new")), owned(), DeleteBalancer(KEPT, is_orphan=True), id="replaced"
        ),
        pytest.param(LEAVING, owned(), DeleteBalancer(LEAVING, is_orphan=False), id="leaves"),
        pytest.param(
            service(finalized, being_deleted, with_status("192.0.2.1")),
            owned(is_deleted=True),
            SetStatus(service(finalized, being_deleted, with_status("192.0.2.1")), []),
            id="its-status-first",
        ),
        pytest.param(LEAVING, owned(is_deleted=True), RemoveFinalizer(LEAVING), id="then-it-goes"),
        pytest.param(
            service(being_deleted), owned(is_deleted=True), Forget(), id="without-a-finalizer"
        ),
        pytest.param(CHANGED, owned(), DeleteBalancer(CHANGED, is_orphan=False), id="of-a-type"),
        pytest.param(GONE_OTHERS, ServiceState(), FindBalancer(GONE_OTHERS), id="anothers-leaves"),
        pytest.param(
            service(finalized, THEIRS),
            ServiceState(),
            Done("left alone: loadBalancerClass theirs is not ours"),
            id="anothers",
        ),
        pytest.param(
            service(spec(loadBalancerClass="ours")),
            ServiceState(),
            AddFinalizer(service(spec(loadBalancerClass="ours"))),
            id="of-our-class",
        ),
        pytest.param(PLAIN, ServiceState(), AddFinalizer(PLAIN), id="new"),
        pytest.param(
            KEPT, ServiceState(), EnsureBalancer(KEPT, BACKENDS, is_check=False), id="first"
        ),
        pytest.param(
            SERVED, ServiceState(), EnsureBalancer(SERVED, BACKENDS, is_check=True), id="restart"
        ),
        pytest.param(
            SERVED,
            owned(last_applied=replace(APPLIED, relevant_spec={})),
            EnsureBalancer(SERVED, BACKENDS, is_check=False),
            id="changed",
        ),
        pytest.param(KEPT, owned(last_applied=APPLIED), SetStatus(KEPT, INGRESS), id="status"),
        pytest.param(
            KEPT,
            owned(last_applied=replace(APPLIED, backends=OTHERS, is_status_tried=True)),
            UpdateNodes(KEPT, BACKENDS),
            id="nodes-before-a-status-that-was-tried",
        ),
        pytest.param(
            KEPT,
            owned(last_applied=replace(APPLIED, is_status_tried=True)),
            SetStatus(KEPT, INGRESS),
            id="the-status-again",
        ),
        pytest.param(
            SERVED, owned(last_applied=APPLIED), Done("has its load balancer"), id="all-is-done"
        ),
        pytest.param(
            service(
                finalized, lambda raw: raw["status"].update(loadBalancer={"ingress": NORMALIZED})
            ),
            owned(last_applied=replace(APPLIED, stored_ingress=NORMALIZED)),
            Done("has its load balancer"),
            id="as-the-api-server-stores-it",
        ),
        pytest.param(
            SERVED,
            owned(last_applied=replace(APPLIED, annotations=SHOWN)),
            SetStatus(SERVED, INGRESS, SHOWN),
            id="annotations",
        ),
        pytest.param(
            service(finalized, with_status("192.0.2.1"), annotated(SHOWN)),
            owned(last_applied=replace(APPLIED, annotations=SHOWN)),
            Done("has its load balancer"),
            id="annotations-are-no-change-of-the-service",
        ),
        pytest.param(
            SERVED,
            owned(last_applied=replace(APPLIED, annotations=SHOWN, has_annotated=True)),
            Done("has its load balancer"),
            id="annotations-that-someone-else-takes-away",
        ),
        pytest.param(
            SERVED,
            owned(last_applied=STALE),
            EnsureBalancer(SERVED, BACKENDS, is_check=True),
            id="resync",
        ),
        pytest.param(KEPT, owned(refusal=REFUSAL), UpdateNodes(KEPT, BACKENDS), id="refused"),
        pytest.param(
            KEPT,
            owned(refusal=REFUSAL, last_applied=APPLIED),
            Refuse(KEPT, "no quota is left"),
            id="refused-with-its-nodes",
        ),
        pytest.param(
            KEPT,
            owned(refusal=ASKED_AGAIN),
            EnsureBalancer(KEPT, BACKENDS, is_check=False),
            id="asked-again",
        ),
    ],
)
def test_the_next_step(now: Service | None, state: ServiceState, expected: PlannedStep) -> None:
    step = plan(now, BACKENDS, state, OURS, NOW)
    assert step == expected
    if isinstance(step, EnsureBalancer | DeleteBalancer):  # equal is not enough: True == 1
        assert {type(getattr(step, name, True)) for name in ("is_check", "is_orphan")} == {bool}


def test_the_flags_say_which_classes_are_ours_and_which_annotations_are_refused() -> None:
    settings = Settings(load_balancer_classes=("ours",))
    assert Capabilities.of(settings, [], ["wide"]) == Capabilities(("ours",), [])
    settings = replace(settings, restrict_service_annotations=True)
    assert Capabilities.of(settings, [], ["wide"]) == Capabilities(("ours",), [], ["wide"])


@pytest.mark.parametrize("namespaces", ["a", "ab"])
@pytest.mark.parametrize(
    ("missing", "known", "is_mass"),
    [(1, 1, False), (2, 2, True), (3, 10, False), (4, 10, True), (30, 100, False)],
)
def test_three_tenths_of_the_services_may_vanish_at_once(
    missing: int, known: int, is_mass: bool, namespaces: str
) -> None:
    keys = [f"{namespaces[at % len(namespaces)]}/s{at}" for at in range(known)]
    why = mass_deletion_reason(keys[:missing], keys)
    assert why.startswith(f"{missing} of {known} Services") if is_mass else why == ""
