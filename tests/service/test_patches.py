"""The writes to a Service, each tested against what was seen."""

import pytest

from ccm.errors import KubernetesError
from ccm.model.objects import Json
from ccm.model.service import FINALIZER, Service
from tests.edge_cases.rows import row
from tests.unit.cluster import patched
from workers.service.patches import patch_for
from workers.service.plan import AddFinalizer, RemoveFinalizer, SetStatus, Write

from .objects import Tweak, annotated, finalized, service, with_finalizer, with_status, with_uid

INGRESS: list[Json] = [{"ip": "192.0.2.1"}]


def after(write: Write, found: Service | None = None) -> Service:
    return Service(patched((found or write.service).raw, patch_for(write).operations))


@row("SV16")
def test_a_finalizer_is_one_test_of_the_list_and_one_replacement() -> None:
    """Row SV16 in our form: upstream sends a strategic merge that names the added one only."""
    patch = patch_for(AddFinalizer(service(with_finalizer("foo"))))
    assert patch.path == "/api/v1/namespaces/default/services/web/status"
    assert patch.operations == (
        {"op": "test", "path": "/metadata/uid", "value": "uid-of-web"},
        {"op": "test", "path": "/metadata/finalizers", "value": ["foo"]},
        {"op": "add", "path": "/metadata/finalizers", "value": ["foo", FINALIZER]},
    )


@pytest.mark.parametrize("others", [[], ["foo"], ["foo", "bar"]])
def test_finalizers_of_others_stay(others: list[str]) -> None:
    before = service(*map(with_finalizer, others))
    added = after(AddFinalizer(before))
    assert added.finalizers == [*others, FINALIZER]
    assert after(RemoveFinalizer(added)).finalizers == others


@pytest.mark.parametrize("ingress", [INGRESS, []])
@pytest.mark.parametrize("tweaks", [[], [with_status("198.51.100.1")]])
def test_a_status_is_replaced_or_cleared(tweaks: list[Tweak], ingress: list[Json]) -> None:
    write = SetStatus(service(*tweaks), ingress)
    assert patch_for(write).path.endswith("/services/web/status")
    assert after(write).ingress == ingress


@pytest.mark.parametrize(
    ("seen", "meanwhile", "write"),
    [
        ([], [with_uid("another")], AddFinalizer),
        ([], [with_finalizer("theirs")], AddFinalizer),
        ([with_finalizer("theirs")], [], AddFinalizer),
        ([finalized], [finalized, with_finalizer("theirs")], RemoveFinalizer),
        ([finalized], [], RemoveFinalizer),
        ([], [with_status("198.51.100.1")], SetStatus),
        ([with_status("198.51.100.1")], [], SetStatus),
        ([], [with_uid("another")], SetStatus),
    ],
)
def test_a_write_planned_against_another_state_is_refused(
    seen: list[Tweak], meanwhile: list[Tweak], write: type[Write]
) -> None:
    planned = SetStatus(service(*seen), INGRESS) if write is SetStatus else write(service(*seen))  # type: ignore[call-arg]
    with pytest.raises(KubernetesError) as refusal:
        after(planned, service(*meanwhile))
    assert refusal.value.status == 422


def test_what_is_not_written_does_not_disturb_a_write() -> None:
    found = after(AddFinalizer(service()), service(annotated({"theirs": "kept"})))
    assert found.annotations == {"theirs": "kept"}
