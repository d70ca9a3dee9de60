"""What people get wrong: one Event that says what to do, nobody held up, and no storm.

The API server itself refuses source ranges and pod CIDRs that are no networks; what the workers do
with them all the same is tested in `tests/integration/service` and `tests/integration/route`.
"""

import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest

from ccm.errors import KubernetesError
from ccm.kube import lease
from ccm.model.objects import Json
from ccm.model.volume import ZONE
from ccm.providers.simulated.load_balancers import SCHEME_ANNOTATION
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import Volume
from tests.e2e.chaos.life import Life
from tests.e2e.chaos.users import UNKNOWN
from tests.support.environment import EVENTS, SERVICES, VOLUMES, persistent_volume, until_renewed
from tests.support.running import until_none
from workers.node import controller as node
from workers.route import controller as route
from workers.service import controller as service
from workers.volume_label import controller as volume_label

pytestmark = pytest.mark.real

RECOVERY_TIMEOUT = 60.0
COMPONENTS = [one.COMPONENT for one in (lease, node, route, service, volume_label)]

ASKED: dict[str, tuple[Json, dict[str, str]]] = {
    "bad-key": ({}, {UNKNOWN: "blue"}),
    "bad-value": ({}, {SCHEME_ANNOTATION: "public"}),
    "bad-protocol": ({"ports": [(80, "SCTP")]}, {}),
    "bad-node-port": ({"allocateLoadBalancerNodePorts": False}, {}),
    "bad-affinity": ({"sessionAffinity": "ClientIP"}, {}),
    "bad-families": ({"ipFamilyPolicy": "RequireDualStack"}, {}),
    "bad-ip": ({"loadBalancerIP": "banana"}, {}),
}
"""Services that cannot have what they ask for: their spec and their annotations."""

TOLD = {
    "bad-key": ("SyncLoadBalancerFailed", f"{UNKNOWN} is not known; there is only"),
    "bad-value": ("SyncLoadBalancerFailed", f"{SCHEME_ANNOTATION} is 'public'; it may be internet"),
    "bad-protocol": ("SyncLoadBalancerFailed", "port 80 is SCTP: use TCP or UDP"),
    "bad-node-port": ("SyncLoadBalancerFailed", "set spec.allocateLoadBalancerNodePorts to true"),
    "bad-affinity": ("SyncLoadBalancerFailed", "session affinity: set spec.sessionAffinity to"),
    "bad-families": ("SyncLoadBalancerFailed", "two IP families: set spec.ipFamilyPolicy to"),
    "bad-ip": ("SyncLoadBalancerFailed", "spec.loadBalancerIP 'banana' is not an IP address"),
    "bad-node": ("FailedToCreateRoute", "it overlaps with a pod CIDR of node vm-1"),
    "bad-handle": ("VolumeNotFound", "the cloud has no volume vol-404"),
    "bad-zone": ("NodeAffinityConflict", "delete this PersistentVolume and create it again with"),
    "web-1": ("UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer"),
}
"""Reason and words of the one Warning about each of them; `web-1` is there before any node is."""


async def warnings(life: Life) -> dict[str, list[tuple[str, str]]]:
    """Reason and message of all Warnings of ours, by the name of whom they are about."""
    reported: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for event in (await life.api.get(EVENTS))["items"]:
        if event["type"] == "Warning" and event["source"].get("component") in COMPONENTS:
            object_ref = event["involvedObject"]["name"]
            reported[object_ref] += [(event["reason"], event["message"])] * event["count"]
    return reported


async def until_reported(life: Life, *names: str) -> None:
    async def untold() -> set[str]:
        return {*names} - (await warnings(life)).keys()

    await until_none("untold", untold, RECOVERY_TIMEOUT)


async def until_good(life: Life) -> None:
    """Until nothing is wrong but what has to be."""

    async def wrong() -> list[str]:
        return [text for text in await life.wrong() if "bad-" not in text]

    await until_none("wrong", wrong, RECOVERY_TIMEOUT)


async def as_old_as(life: Life, name: str) -> list[str]:
    """The Node, as long as one that is created now would be as old by its timestamp."""
    created = (await life.api.get(f"/api/v1/nodes/{name}"))["metadata"]["creationTimestamp"]
    is_now = datetime.now(UTC) - datetime.fromisoformat(created) <= timedelta(seconds=1)
    return [name] if is_now else []


async def ask_for_what_cannot_be(life: Life) -> None:
    for name, (spec, annotations) in ASKED.items():
        await life.users.ask(name, spec, annotations)
    await until_none("as old as vm-1", lambda: as_old_as(life, "vm-1"), RECOVERY_TIMEOUT)
    await life.nodes.join("bad-node", 1)  # the networks of vm-1, which stay with the older Node
    await life.admin.add_volume(Volume("vol-bad", ("zone-a",), "region-1"))
    elsewhere = {"key": ZONE, "operator": "In", "values": ["zone-z"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}}
    for volume in (
        persistent_volume("bad-handle", "vol-404"),
        persistent_volume("bad-zone", "vol-bad", nodeAffinity=affinity),
    ):
        await life.api.post(VOLUMES, volume)


async def test_each_is_reported_once_and_holds_up_no_one(life: Life) -> None:
    both = {"ports": [(53, "TCP"), (53, "UDP")]}
    await life.users.ask("web-1", {}, {})
    await until_reported(life, "web-1")
    await life.nodes.join("vm-1", 1)
    await until_good(life)
    await ask_for_what_cannot_be(life)
    await life.nodes.join("vm-2", 2)
    await life.users.ask("web-2", both, {})
    await life.users.volume("vol-1", ["zone-a"], is_late=False)
    await until_reported(life, *TOLD)
    await until_good(life)
    await life.admin.reset_counters()
    began = time.monotonic()
    await until_renewed(life.api, times=8)  # a storm would be seen
    counters, seconds = await life.admin.counters(), time.monotonic() - began
    assert counters["writes"] == 0, counters["rows"]
    assert counters["reads"] <= max(4, seconds), counters["rows"]  # is vol-404 there by now?
    reported = await warnings(life)
    assert reported.keys() == TOLD.keys()
    for name, (reason, words) in TOLD.items():
        times = 2 if name == "bad-node" else 1  # it has two networks
        assert [given for given, _ in reported[name]] == [reason] * times
        assert all(words in message for _, message in reported[name]), reported[name]


async def test_what_is_taken_back_while_it_is_made_leaves_nothing_behind(life: Life) -> None:
    """First while the call is under way, then while the cloud is at work."""

    async def find() -> list[str]:
        calls = [row["operation"] for row in (await life.admin.counters())["rows"]]
        return [] if "CreateLoadBalancer" in calls else ["nothing", *calls]

    await life.nodes.join("vm-1", 1)
    await life.until_done(RECOVERY_TIMEOUT)
    await life.admin.set_limits(provisioning=0.8, deletion=0.8)
    await life.admin.set_fault(CloudFault(CloudFaultKind.SLOW, "CreateLoadBalancer", 1, delay=0.8))
    for _ in range(2):
        await life.admin.reset_counters()
        await life.users.ask("web-1", {}, {})
        await until_none("not begun", find, RECOVERY_TIMEOUT)
        await life.users.drop("web-1")
        await life.until_done(RECOVERY_TIMEOUT)
        with pytest.raises(KubernetesError, match="404"):
            await life.api.get(f"{SERVICES}/web-1")
    assert await warnings(life) == {}


async def test_who_finds_the_quota_used_up_gets_the_next_place(life: Life) -> None:
    await life.nodes.join("vm-1", 1)
    await life.users.ask("web-1", {}, {})
    await life.until_done(RECOVERY_TIMEOUT)
    used = len((await life.admin.state())["load_balancers"])
    await life.admin.set_limits(max_load_balancers=used)
    await life.users.ask("web-2", {}, {})
    await until_reported(life, "web-2")
    [(reason, message)] = (await warnings(life))["web-2"]
    assert reason == "SyncLoadBalancerFailed"
    assert f"QuotaExceeded: the account may have {used} load balancers" in message
    await life.users.drop("web-1")
    await life.until_done(RECOVERY_TIMEOUT)
