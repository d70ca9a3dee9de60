"""What the cloud's failures become: the class says what the caller does, and nothing is guessed."""

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import FaultKind
from ccm.cloud.testkit.operations import READS, WRITES, Describe, DescribeVolumes, Operation
from ccm.cloud.testkit.world import World
from ccm.errors import (
    CloudError,
    Denied,
    ImplementedElsewhere,
    NotImplementedByProvider,
    Refused,
    RetryAfter,
    Throttled,
)
from ccm.model.cloud import Unknown

pytestmark = pytest.mark.asyncio

OPERATIONS = (*READS, *WRITES)
SPECIAL = (Denied, Throttled, Refused, RetryAfter, ImplementedElsewhere, NotImplementedByProvider)
"""What makes a caller do something else than try again with back-off."""


def is_told_right(error: Exception, kind: FaultKind, retry_after: float | None) -> bool:
    match kind:
        case FaultKind.DENIED:
            return isinstance(error, Denied)
        case FaultKind.THROTTLED:
            return isinstance(error, Throttled) and error.seconds == retry_after
        case _:
            return isinstance(error, CloudError) and not isinstance(error, SPECIAL)


@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("make", OPERATIONS)
async def test_a_failure_is_told_as_what_it_is(
    world: World, make: type[Operation], kind: FaultKind
) -> None:
    operation = make()
    await operation.prepare(world)
    world.gate.errors.clear()
    async with world.unchanged(), world.fault(kind):
        outcome = await operation.outcome(world)
    told: list[Exception] = [*world.gate.errors]
    assert told or kind is FaultKind.GARBAGE, "the call ended well at the gate"
    if isinstance(outcome, Exception):
        told.append(outcome)
    else:
        assert make in (Describe, DescribeVolumes), f"it answered {outcome!r}"
        assert all(isinstance(answer, Unknown) for answer in outcome.values()), outcome
    wrong = [error for error in told if not is_told_right(error, kind, world.adapter.retry_after)]
    assert not wrong


@pytest.mark.parametrize("make", OPERATIONS)
async def test_once_the_failure_is_over_the_same_provider_goes_on(
    world: World, make: type[Operation]
) -> None:
    operation = make()
    await operation.prepare(world)
    async with world.fault(FaultKind.ERROR):
        await operation.outcome(world)
    await world.finish(operation.run, world)
    await operation.check(world)


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.THROTTLED])
@pytest.mark.parametrize("make", OPERATIONS)
async def test_the_sdk_does_not_repeat_calls_by_itself(
    world: World, make: type[Operation], kind: FaultKind
) -> None:
    operation = make()
    await operation.prepare(world)
    counted, start = await invoke(world.adapter.calls), len(world.gate.calls)
    async with world.fault(kind):
        await operation.outcome(world)
    assert await invoke(world.adapter.calls) - counted == len(world.gate.calls) - start
