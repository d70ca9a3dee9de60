"""Passes over many nodes: which they are about, and that they hold up nobody."""

import asyncio
from itertools import pairwise

import pytest

from ccm.bus.frames import Objects
from ccm.model.objects import Node
from workers.node.controller import PROJECTIONS
from workers.node.passes import NODES_AT_ONCE, nodes_where
from workers.store import Store

pytestmark = pytest.mark.virtual_time


def filled(number: int) -> Store:
    """A store with this many nodes, the last name first."""
    store = Store(PROJECTIONS)
    names = [f"n{index:04}" for index in reversed(range(number))]
    entries = [["Node", name, 1, {"metadata": {"name": name}}] for name in names]
    store.absorb(Objects.of(1, 1, True, entries))
    return store


async def test_others_have_their_turn_meanwhile() -> None:
    store = filled(5 * NODES_AT_ONCE)
    seen: list[int] = []
    looked_at = 0

    def look(node: Node) -> bool:
        nonlocal looked_at
        looked_at += 1
        return True

    looking = asyncio.create_task(nodes_where(store, store.keys(Node.KIND), look))
    while not looking.done():
        await asyncio.sleep(0)
        seen.append(looked_at)
    assert max(after - before for before, after in pairwise(seen)) <= NODES_AT_ONCE
    assert len(await looking) == 5 * NODES_AT_ONCE


async def test_a_node_that_goes_meanwhile_is_left_out() -> None:
    store = filled(2 * NODES_AT_ONCE)
    names = store.keys(Node.KIND)
    looking = asyncio.create_task(nodes_where(store, names, lambda node: True))
    await asyncio.sleep(0)
    store.absorb(Objects.of(1, 2, False, [["Node", max(names), 0, None]]))
    assert len(await looking) == 2 * NODES_AT_ONCE - 1
