"""Work for Nodes of which some have no machine any more, as Kubernetes has yet to notice."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from ccm.cloud.record_balancers import ENDING, PresentNodes
from ccm.cloud.testkit.harness import node
from ccm.errors import Refused
from ccm.model.cloud import Answer, Gone, Unknown
from ccm.model.objects import Node

NODES = [node(name, f"cloud://{name}") for name in ("there", "ended")]


class Machines:
    """One of them has ended."""

    async def describe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        gone = Gone("it has ended")
        return {item.name: gone if item.name == "ended" else Unknown("?") for item in nodes}


@pytest.mark.virtual_time
async def test_work_is_performed_one_by_one_only_while_machines_end() -> None:
    """Some Services change all the time: with them, all would wait in turns for ever."""
    machines: Any = Machines()
    present, counts = PresentNodes(machines), [list[int](), list[int]()]
    under_way, began = 0, time.monotonic()

    async def refuse() -> None:
        raise Refused("an instance of the list has ended")

    async def perform(sent: Sequence[Node]) -> None:
        nonlocal under_way
        under_way += 1
        counts[time.monotonic() - began > 2 * ENDING].append(under_way)
        await asyncio.sleep(0.3)
        under_way -= 1
        if len(sent) > 1:
            await present.write(refuse())

    async def change() -> None:
        while time.monotonic() - began < 3 * ENDING:
            await present.perform(perform, NODES)

    await asyncio.gather(*(change() for _ in range(8)))
    while_they_end, later = counts
    assert 1 in while_they_end[8:]
    assert max(later) == 8
