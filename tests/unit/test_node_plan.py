"""Which Nodes the cloud is asked about, and what the log says of a write."""

import pytest

from ccm.model.objects import Json
from tests.support.nodes import (
    OTHER_TAINT,
    PROVIDER_IDS,
    Tweak,
    machine,
    node,
    ready,
    tainted,
    with_provider_id,
)
from workers.node.plan import (
    SHUTDOWN,
    Action,
    Initialize,
    SetAddresses,
    SetLabels,
    SetTaints,
    impossible_labels,
    is_refreshed,
    is_watched,
    message_for,
)

OURS, FOREIGN = with_provider_id("fake://1"), with_provider_id("other://1")


def deleted(raw: Json) -> None:
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("tweaks", "refreshed", "watched"),
    [
        ([], False, True),
        ([OURS], True, True),
        ([OURS, ready], True, False),
        ([OURS, tainted], False, True),
        ([FOREIGN], False, False),
        ([OURS, deleted], False, False),
        ([deleted, ready], False, False),
    ],
)
def test_the_cloud_is_asked_about_a_node(
    tweaks: list[Tweak], refreshed: bool, watched: bool
) -> None:
    """In each refresh, and in each monitor pass."""
    of = node(*tweaks)
    assert (is_refreshed(of, PROVIDER_IDS), is_watched(of, PROVIDER_IDS)) == (refreshed, watched)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (SetAddresses([]), "node addresses changed"),
        (Initialize({}, "", []), "node initialized"),
        (SetLabels({}), "node labels changed"),
        (SetTaints([OTHER_TAINT, SHUTDOWN]), "shutdown taint set"),
        (SetTaints([OTHER_TAINT]), "shutdown taint removed"),
    ],
)
def test_a_write_is_logged(action: Action, message: str) -> None:
    assert message_for(action) == message


def test_what_cannot_be_a_label_is_shown() -> None:
    where = machine(type="large", zone="a b")
    keys = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
    assert impossible_labels(where) == [f"{key}='a b'" for key in keys]
