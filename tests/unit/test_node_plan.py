"""Which Nodes the cloud is asked about, and what is written of the answer."""

import time
from contextlib import suppress

import orjson
import pytest

from ccm.model.cloud import AddressType, Instance, NodeAddress, PowerState
from ccm.model.objects import MOST_ENTRIES, Json
from tests.support.nodes import (
    OTHER_TAINT,
    PROVIDER_IDS,
    Tweak,
    labelled,
    machine,
    node,
    provided_ip,
    ready,
    tainted,
    with_addresses,
    with_provider_id,
    with_taint,
)
from workers.node.plan import (
    SHUTDOWN,
    Action,
    CannotPlan,
    Initialize,
    SetAddresses,
    SetLabels,
    SetTaints,
    agreeing_labels,
    desired_addresses,
    impossible_labels,
    is_refreshed,
    is_watched,
    message_for,
    missing_labels,
    patch_for,
    plan,
    plan_power,
    plan_update,
    written,
)

ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
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


def test_taints_of_which_some_were_cut_off_are_not_written() -> None:
    """A kubelet may register with thousands, and a person adds one that keeps work off the Node."""
    first = (with_taint({"key": f"{number}"}) for number in range(MOST_ENTRIES - 1))
    many, stopped = node(tainted, *first), machine(power=PowerState.STOPPED)
    with pytest.raises(CannotPlan, match="too many taints"):
        list(plan(many, machine("fake://1")))
    assert list(plan_power(many, stopped)) == []
    assert list(plan_power(node(), stopped)) == [SetTaints([SHUTDOWN])]


def test_what_cannot_be_a_label_is_shown_and_left_out() -> None:
    where = machine(type="large", zone="a b")
    assert impossible_labels(where) == [f"{key}='a b'" for key in ZONES]
    assert missing_labels(where, {}) == dict.fromkeys(TYPES, "large")


def test_labels_of_both_keys_that_agree_are_not_written_again() -> None:
    assert agreeing_labels(dict.fromkeys(ZONES, "a"), beta_wins=False) == {}


def test_what_the_machine_is_by_now_is_written_with_what_makes_labels_agree() -> None:
    of = node(labelled({TYPES[0]: "small", ZONES[0]: "a", ZONES[1]: "b"}))
    [action] = plan_update(of, machine(type="large", zone="a"), beta_wins=False)
    assert action == SetLabels({ZONES[1]: "a", TYPES[0]: "large"})


def test_a_node_of_which_no_provider_id_is_known_is_named() -> None:
    with pytest.raises(CannotPlan, match="does not set node provider ID for node node-1"):
        next(plan(node(tainted), machine("")))


def test_an_initialization_is_one_write_whose_result_is_known() -> None:
    of, action = node(tainted, with_taint(OTHER_TAINT)), Initialize({"a": "b"}, "", [OTHER_TAINT])
    this = {"uid": of.uid, "resourceVersion": "1"}
    assert patch_for(of, action, 1).merge == {
        "metadata": {**this, "labels": {"a": "b"}},
        "spec": {"taints": [OTHER_TAINT]},
    }
    assert patch_for(of, SetTaints([]), 1).merge == {"metadata": this, "spec": {"taints": None}}
    assert written(of.raw, action, {})["spec"] == {"taints": [OTHER_TAINT]}
    assert written(node().raw, SetLabels({}), {})["spec"] == {}


def test_what_a_cloud_lists_without_measure_is_no_larger_than_a_node_may_be() -> None:
    """The API server would refuse all that is written with it, for ever."""
    many = [NodeAddress(AddressType.INTERNAL_IP, f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
            for n in range(50_000)]  # fmt: skip
    long = NodeAddress(AddressType.HOSTNAME, "x" * 10_000)
    labels = {f"example.com/layer-{number}": "x" for number in range(50_000)}
    found = Instance("fake://1", "t1", addresses=(long, *many), labels=labels)
    asked = node(tainted, with_addresses("Hostname own"))
    patches = [patch_for(asked, action).operations for action in plan(asked, found)]
    assert len(orjson.dumps(patches)) < 100_000
    offered = desired_addresses(node(provided_ip("10.0.0.9")), found.addresses)
    assert offered[0] == {"type": "InternalIP", "address": "10.0.0.9"}


@pytest.mark.parametrize("provided", ["1," * 130_000, "," * 260_000, "10.0.0.9"])
def test_what_a_kubelet_writes_about_its_addresses_costs_no_time(provided: str) -> None:
    """It may change its Node ten times a second, and each change is planned."""
    own = [f"Hostname {at}.example.com" for at in range(MOST_ENTRIES)]
    found = [NodeAddress(AddressType.INTERNAL_IP, "10.0.0.9")]
    rounds = list[float]()
    for _ in range(10):  # a round may have the garbage of other tests to collect
        began = time.thread_time()
        with suppress(CannotPlan):
            desired_addresses(node(provided_ip(provided), with_addresses(*own)), found)
        rounds.append(time.thread_time() - began)
    assert min(rounds) < 0.025
