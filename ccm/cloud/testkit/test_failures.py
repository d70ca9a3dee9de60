"""What the cloud's failures become, and that an interrupted operation is done by doing it again."""

from itertools import count

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import USUAL_FAULTS, FaultKind
from ccm.cloud.testkit.gate import Interruption, ProcessKilled
from ccm.cloud.testkit.harness import Harness
from ccm.cloud.testkit.operations import (
    OPERATIONS,
    READS,
    WRITES,
    CreateRoute,
    DeleteRoute,
    Describe,
    DescribeVolumes,
    Operation,
)
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

SPECIAL = (Denied, Throttled, Refused, RetryAfter, ImplementedElsewhere, NotImplementedByProvider)
"""What makes a caller do something else than try again with back-off."""


def is_right_error(error: Exception, kind: FaultKind, retry_after: float | None) -> bool:
    """Whether the error says what the caller is to do about such a fault."""
    match kind:
        case FaultKind.DENIED:
            return isinstance(error, Denied)
        case FaultKind.THROTTLED:
            return isinstance(error, Throttled) and error.seconds == retry_after
        case _:
            return isinstance(error, CloudError) and not isinstance(error, SPECIAL)


@pytest.mark.parametrize("kind", USUAL_FAULTS)
@pytest.mark.parametrize("operation", OPERATIONS, indirect=True)
async def test_a_failure_is_reported_as_what_it_is(
    harness: Harness, operation: Operation, kind: FaultKind
) -> None:
    harness.gate.errors.clear()
    async with harness.no_change(), harness.fault(kind):
        outcome = await operation.result_or_error(harness)
    raised: list[Exception] = [*harness.gate.errors]
    assert raised or kind is FaultKind.GARBAGE, "the call ended well at the gate"
    if isinstance(outcome, Exception):
        raised.append(outcome)
    else:
        assert isinstance(operation, Describe | DescribeVolumes), f"it answered {outcome!r}"
        assert all(isinstance(answer, Unknown) for answer in outcome.values()), outcome
    wrong = [
        error for error in raised if not is_right_error(error, kind, harness.adapter.retry_after)
    ]
    assert not wrong


HOSTILE_FAULTS = [kind for kind in FaultKind if kind not in USUAL_FAULTS]


@pytest.mark.parametrize("kind", HOSTILE_FAULTS)
@pytest.mark.parametrize("operation", READS, indirect=True)
async def test_an_answer_without_measure_is_a_failure_in_time_and_of_one_line(
    harness: Harness, operation: Operation, kind: FaultKind
) -> None:
    """And no request, with its credentials, goes where an answer points."""
    is_elsewhere = kind is FaultKind.ELSEWHERE
    elsewhere = await invoke(harness.adapter.count_calls_elsewhere) if is_elsewhere else 0
    harness.gate.errors.clear()
    async with harness.no_change(), harness.fault(kind):
        outcome = await operation.result_or_error(harness)
    texts = [str(error) for error in harness.gate.errors]
    if isinstance(outcome, CloudError):
        texts.append(str(outcome))
    else:
        assert isinstance(operation, Describe | DescribeVolumes), f"it answered {outcome!r}"
        assert all(isinstance(answer, Unknown) for answer in outcome.values()), outcome
        texts += [answer.why for answer in outcome.values()]
    assert texts
    harness.check_texts(texts)
    if is_elsewhere:
        assert await invoke(harness.adapter.count_calls_elsewhere) == elsewhere
    await harness.until_done(operation.run, harness)


@pytest.mark.parametrize("operation", OPERATIONS, indirect=True)
async def test_once_the_failure_is_over_the_same_provider_goes_on(
    harness: Harness, operation: Operation
) -> None:
    async with harness.fault(FaultKind.ERROR):
        await operation.result_or_error(harness)
    await harness.until_done(operation.run, harness)
    await operation.check(harness)


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.THROTTLED])
@pytest.mark.parametrize("operation", OPERATIONS, indirect=True)
async def test_the_sdk_does_not_repeat_calls_by_itself(
    harness: Harness, operation: Operation, kind: FaultKind
) -> None:
    counted, start = await invoke(harness.adapter.count_calls), len(harness.gate.calls)
    async with harness.fault(kind):
        await operation.result_or_error(harness)
    assert await invoke(harness.adapter.count_calls) - counted == len(harness.gate.calls) - start


MAX_CALLS = 200
FINAL = (Refused, ImplementedElsewhere, NotImplementedByProvider)
"""What makes a controller stop trying."""


async def resources_after(harness: Harness, operation: Operation) -> int:
    """How much the cloud keeps for balancers once the operation is done; it is done right."""
    await operation.check(harness)
    if isinstance(operation, CreateRoute | DeleteRoute):
        return 0
    return len(set(await invoke(harness.adapter.balancer_resources)))


async def interrupted_run(harness: Harness, operation: Operation) -> bool:
    """Run once with an interruption set; whether it returned as if the work were done."""
    try:
        outcome = await operation.result_or_error(harness)
    except ProcessKilled:
        return False
    assert not isinstance(outcome, FINAL), f"this would never be tried again: {outcome!r}"
    return not isinstance(outcome, CloudError)


@pytest.mark.parametrize("how", Interruption)
@pytest.mark.parametrize("operation", WRITES, indirect=True)
async def test_it_converges_from_wherever_it_was_broken_off(
    harness: Harness, operation: Operation, how: Interruption
) -> None:
    await harness.until_done(operation.run, harness)
    whole = await resources_after(harness, operation)
    for number in count(1):
        assert number < MAX_CALLS, "it makes calls without end"
        await harness.reset()
        await operation.prepare(harness)
        harness.gate.interrupt_call(number, how)
        is_done = await interrupted_run(harness, operation)
        was_interrupted = harness.gate.clear_interruption()
        if is_done:
            assert await resources_after(harness, operation) == whole, f"after call {number} {how}"
        if not was_interrupted:
            assert number > 1, "it made no call at all"
            return
        await harness.restart()
        await harness.until_done(operation.run, harness)
        left = await resources_after(harness, operation)
        assert left == whole, f"after call {number} {how}: {left} resources where {whole} belong"
