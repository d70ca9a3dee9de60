"""Two writers of one field: who repeats a write waits ever longer, and says who the other is."""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from ccm.errors import Contested, KubernetesError
from ccm.kube.client import Kube
from ccm.model.objects import Json
from ccm.model.writes import Merge, Patch, Write
from tests.support.context import FakePort
from workers.performer import CALM, WRITE_PAUSE, WRITES, Performer

pytestmark = pytest.mark.virtual_time

NODE = "/api/v1/nodes/n"


def patch(path: str, value: object, at: str = f"{NODE}/status") -> Patch:
    test = {"op": "test", "path": "/metadata/uid", "value": "u"}
    return Patch(at, (test, {"op": "add", "path": path, "value": value}))


def condition(status: str) -> Merge:
    now = {"lastTransitionTime": str(time.monotonic()), "status": status}
    conditions = [{"type": "NetworkUnavailable", **now}]
    return Merge(f"{NODE}/status", {"metadata": {"uid": "u"}, "status": {"conditions": conditions}})


class Server:
    """Takes every write, unless `failures` says otherwise; `rogue` is who reverts them."""

    def __init__(self) -> None:
        self.writes = 0
        self.failures: list[KubernetesError] = []
        self.performer = Performer(cast(Kube, self), FakePort().permission, grace=5.0)

    async def patch(self, *_: Any) -> Json:
        if self.failures:
            raise self.failures.pop(0)
        self.writes += 1
        return {"metadata": {"name": "n"}}

    async def get(self, path: str) -> Json:
        assert path == NODE
        fields: Json = {
            "f:status": {"f:loadBalancer": {}, "f:conditions": {}},
            "f:metadata": {"f:labels": {}, "f:finalizers": {}},
            "f:spec": {"f:taints": {}},
        }
        entries = [
            {"manager": "ccm-supervisor", "time": "3", "fieldsV1": fields},
            {"manager": "kubelet", "time": "4", "fieldsV1": {"f:status": {"f:images": {}}}},
            {"manager": "rogue", "time": "2", "fieldsV1": fields},
            {"manager": "before", "time": "1", "fieldsV1": fields},
        ]
        return {"metadata": {"managedFields": entries}}

    async def write(self, write: Write) -> Contested | None:
        try:
            await self.performer.perform(write)
        except Contested as contest:
            return contest
        return None

    async def fight(self, make: Any, seconds: float) -> list[str]:
        """Write again and again, as whoever is reverted at once."""
        end, reported = time.monotonic() + seconds, []
        while time.monotonic() < end:
            if contest := await self.write(make()):
                reported.append(str(contest))
            await asyncio.sleep(0.05)
        return reported


@pytest.mark.parametrize(
    "make",
    [
        lambda: patch("/status/loadBalancer", {"ingress": [{"ip": "192.0.2.1"}]}),
        lambda: replace(patch("/status/loadBalancer", {"ingress": []}), cannot_wait=True),
        lambda: patch("/metadata/labels/a~1b", "c"),
        lambda: patch("/metadata/finalizers", ["service.kubernetes.io/load-balancer-cleanup"]),
        lambda: Merge(NODE, {"metadata": {"uid": "u"}, "spec": {"taints": [{"key": "off"}]}}),
        lambda: condition("False"),
    ],
    ids=["status", "address", "label", "finalizer", "taint", "condition"],
)
async def test_a_field_that_another_client_sets_back_is_written_ever_more_seldom(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """CT2, and MC56 and MC61 of several clouds."""
    caplog.set_level(logging.INFO)
    server = Server()
    reported = await server.fight(make, 15.0)
    assert 5 <= server.writes <= 7
    await server.fight(make, 600.0)
    assert server.writes <= 12
    assert all("'rogue', by managedFields, sets /" in line for line in reported)
    assert caplog.messages == ["writes reverted"]
    await asyncio.sleep(400.0)
    assert caplog.messages == ["writes reverted", "writes no longer reverted"]
    await server.fight(make, 0.02)
    assert caplog.messages == ["writes reverted", "writes no longer reverted"]


async def test_a_field_that_changes_for_ever_is_written_once_in_a_while() -> None:
    """A kubelet that gives a label two values in turns has it written, and logged, each time."""
    server, reported = Server(), set[str]()
    for number in range(3000):
        if contest := await server.write(condition(str(number % 2))):
            reported.add(str(contest))
        await asyncio.sleep(0.1)
    assert server.writes <= WRITES + 300 / WRITE_PAUSE + 1
    assert "/status/conditions changes again and again: it is written later" in reported


async def test_what_changes_or_comes_seldom_or_fails_is_no_contest() -> None:
    server = Server()
    for number in range(20):
        assert await server.write(condition(str(number % 2))) is None
    for _ in range(20):
        await asyncio.sleep(CALM + 1)
        assert await server.write(patch("/spec/taints", [])) is None
    server.failures = [KubernetesError(409, "Conflict", "changed", None)] * 20
    for _ in range(20):
        with pytest.raises(KubernetesError):
            await server.write(patch("/spec/providerID", "a"))
    assert await server.write(patch("/spec/providerID", "a")) is None
