"""What kubelets and tenants write: of any length, and about what is not theirs."""

import time
from collections.abc import Awaitable, Collection, Iterator
from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import Owner
from ccm.cloud.testkit.harness import Harness, node, node_of, service, volume
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Answer, Gone, Instance, PlaceAnswer, Unknown
from ccm.model.objects import Node
from ccm.model.service import Service

pytestmark = pytest.mark.asyncio

SIZE = 250_000  # characters
LONG = [text * (SIZE // len(text)) for text in ("a", "1", ",", "eyJ-", '\\"', "a=b,", "\x1b\n")]
CPU_SECONDS = 5.0
"""For one object; a reading that is quadratic in the length takes minutes."""


async def in_time(what: Awaitable[Any]) -> Any:
    """What it comes to, if this process worked for a short time only."""
    began = time.process_time()
    try:
        return await what
    finally:
        assert time.process_time() - began < CPU_SECONDS


def check_no_answer(harness: Harness, answer: Answer | PlaceAnswer) -> None:
    """The cloud has nothing like it, which can be shown."""
    assert isinstance(answer, Unknown | Gone)
    harness.check_texts([answer.why if isinstance(answer, Unknown) else answer.evidence])


def hostile_nodes(scheme: str) -> Iterator[Node]:
    """Nodes with such a text in one field each."""
    for at, text in enumerate(LONG):
        yield node(f"id-{at}", f"{scheme}://{text}")
        for field in ("annotations", "labels"):
            odd = node(f"{field}-{at}")
            odd.raw["metadata"][field] = {text: text}
            yield odd
        odd = node(f"status-{at}")
        address = {"type": "InternalIP", "address": text}
        odd.raw["status"] = {"addresses": [address], "nodeInfo": {"systemUUID": text}}
        yield odd


async def test_a_node_of_long_texts_costs_the_others_nothing(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    for odd in hostile_nodes(machine.provider_id.partition("://")[0]):
        answers = await in_time(harness.describe([odd, node_of(machine)]))
        assert isinstance(answers[machine.node], Instance)
        check_no_answer(harness, answers[odd.name])


async def test_a_volume_of_long_texts_costs_the_others_nothing(harness: Harness) -> None:
    for source in harness.volume_sources:
        current = await invoke(harness.adapter.create_volume, source)
        wanted = (await harness.places([volume("there", current.spec)]))["there"]
        for text in LONG:
            spec = {"csi": {"driver": source, "volumeHandle": text}, source: {"volumeID": text}}
            asked = [volume("odd", spec), volume("there", current.spec)]
            answers = await in_time(harness.places(asked))
            assert answers["there"] == wanted
            check_no_answer(harness, answers["odd"])


def hostile_services(annotations: Collection[str]) -> Iterator[Service]:
    """Services with such a text in one field each."""
    for text in LONG:
        for key in annotations:
            yield service("odd", {key: text})
        yield service("odd", loadBalancerIP=text)
        yield service("odd", loadBalancerSourceRanges=[text])
        yield service("odd", sessionAffinity=text)


async def test_a_service_of_long_texts_is_served_or_refused_in_time(harness: Harness) -> None:
    known = {key for annotations in harness.adapter.annotation_sets() for key in annotations}
    for odd in hostile_services(known):
        try:
            made = await in_time(harness.call(harness.load_balancers.ensure, odd, []))
            harness.check_texts(made.warnings)
        except CloudError as error:
            harness.check_texts([str(error)])


@pytest.mark.parametrize("owner", Owner)
async def test_a_balancer_or_address_of_another_that_a_service_names_is_refused(
    harness: Harness, owner: Owner
) -> None:
    theirs = service("theirs")
    name = harness.load_balancers.name_for(theirs)
    await invoke(harness.adapter.create_foreign_balancer, name, theirs, owner)
    if owner is not Owner.OTHER_CLUSTER:  # it may be shared, unless that is forbidden
        await harness.restart(restricts_annotations=True)
    references = await invoke(harness.adapter.references_to, name)
    assert references
    backends = [node_of(machine) for machine in await harness.machines(1)]
    for number, (annotations, spec) in enumerate(references):
        asked = service(f"hostile-{number}", annotations, **spec)
        async with harness.no_change():
            with pytest.raises(Refused):
                await harness.until_done(harness.load_balancers.ensure, asked, backends)
            await harness.until_done(harness.load_balancers.delete, asked)
