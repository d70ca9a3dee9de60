"""Credentials and trust: proved at little cost, left alone when refused, taken up when renewed."""

import asyncio

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.proof import prove_credentials
from ccm.cloud.testkit.harness import Harness, node_of
from ccm.errors import CloudError
from ccm.model.cloud import Instance
from ccm.model.objects import Node

pytestmark = pytest.mark.asyncio

TOGETHER = 5


async def is_answered(harness: Harness, nodes: list[Node]) -> bool:
    """Whether the cloud says which machines these are."""
    try:
        answers = await harness.call(harness.instances.describe, nodes)
    except CloudError as error:
        harness.check_texts([str(error)])
        return False
    return all(isinstance(answer, Instance) for answer in answers.values())


async def calls_of(harness: Harness, nodes: list[Node], times: int) -> int:
    """How many requests it takes until all who ask at the same time are refused."""
    counted = await invoke(harness.adapter.count_calls)
    assert not any(await asyncio.gather(*(is_answered(harness, nodes) for _ in range(times))))
    return await invoke(harness.adapter.count_calls) - counted


async def test_refused_credentials_are_shown_again_when_they_changed(harness: Harness) -> None:
    """Else they are not: a cloud may lock the account, for all who use it."""
    nodes = [node_of(machine) for machine in await harness.machines(1)]
    assert await is_answered(harness, nodes)
    await invoke(harness.adapter.refuse_credentials)
    assert await calls_of(harness, nodes, 1) > 0
    assert await calls_of(harness, nodes, TOGETHER) == 0, "they are shown again"
    await invoke(harness.adapter.renew_credentials)
    assert await is_answered(harness, nodes)


async def test_credentials_that_were_never_taken_are_shown_by_one_call_alone(
    harness: Harness,
) -> None:
    nodes = [node_of(machine) for machine in await harness.machines(1)]
    await invoke(harness.adapter.refuse_credentials)
    made = []
    for times in (1, TOGETHER):
        await harness.restart()
        made.append(await calls_of(harness, nodes, times))
    assert made[0] == made[1] > 0


async def test_credentials_are_proved_at_little_cost_however_many_machines_there_are(
    harness: Harness,
) -> None:
    costs = []
    for count in (1, 2 * harness.instances.batch_size):
        await harness.machines(count)
        counted = await invoke(harness.adapter.count_calls)
        assert not await prove(harness)
        costs.append(await invoke(harness.adapter.count_calls) - counted)
    assert costs[0] == costs[1] > 0
    await invoke(harness.adapter.refuse_credentials)
    why = await prove(harness)
    assert why
    harness.check_texts([why])


async def prove(harness: Harness) -> str:
    context = harness.context(harness.config)
    return str(await prove_credentials(harness.provider_name, context) or "")


async def test_a_renewed_authority_is_trusted_by_the_provider_that_is_there(
    harness: Harness,
) -> None:
    nodes = [node_of(machine) for machine in await harness.machines(1)]
    assert await is_answered(harness, nodes)
    await invoke(harness.adapter.renew_certificate)
    assert await is_answered(harness, nodes)
