"""Broken off after any of its calls, an operation is done by doing it again: no orphan, no twin."""

from itertools import count

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.gate import Break, Cut
from ccm.cloud.testkit.operations import WRITES, CreateRoute, DeleteRoute, Operation
from ccm.cloud.testkit.world import World
from ccm.errors import CloudError, ImplementedElsewhere, NotImplementedByProvider, Refused

pytestmark = pytest.mark.asyncio

MOST_CALLS = 200
FINAL = (Refused, ImplementedElsewhere, NotImplementedByProvider)
"""What makes a controller stop trying."""


async def pieces_after(world: World, operation: Operation) -> int:
    """How much the cloud keeps for balancers once the operation is done; it is done right."""
    await operation.check(world)
    if isinstance(operation, CreateRoute | DeleteRoute):
        return 0
    return len(set(await invoke(world.adapter.pieces)))


async def broken_run(world: World, operation: Operation) -> bool:
    """Run once with a break set; whether it was said that the work is done."""
    try:
        outcome = await operation.outcome(world)
    except Cut:
        return False
    assert not isinstance(outcome, FINAL), f"this would never be tried again: {outcome!r}"
    return not isinstance(outcome, CloudError)


@pytest.mark.parametrize("how", Break)
@pytest.mark.parametrize("make", WRITES)
async def test_it_converges_from_wherever_it_was_broken_off(
    world: World, make: type[Operation], how: Break
) -> None:
    operation = make()
    await operation.prepare(world)
    await world.finish(operation.run, world)
    whole = await pieces_after(world, operation)
    for number in count(1):
        assert number < MOST_CALLS, "it makes calls without end"
        await world.reset()
        await operation.prepare(world)
        world.gate.break_call(number, how)
        is_done = await broken_run(world, operation)
        was_broken = world.gate.mend()
        if is_done:
            assert await pieces_after(world, operation) == whole, f"after call {number} {how}"
        if not was_broken:
            assert number > 1, "it made no call at all"
            return
        await world.restart()
        await world.finish(operation.run, world)
        left = await pieces_after(world, operation)
        assert left == whole, f"after call {number} {how}: {left} pieces where {whole} belong"
