"""What kubelets and tenants write: of any length, and about what is not theirs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import count, product
from typing import Any

import orjson
import pytest

from ccm.cloud.gate import invoke, with_priority
from ccm.cloud.interface import ChecksServices
from ccm.cloud.testkit.adapter import Machine, Owner, Untestable
from ccm.cloud.testkit.gate import LACKING, AnothersAnswer, HeldBack, LackingAnswer
from ccm.cloud.testkit.harness import Harness, node, node_of, port, service, volume
from ccm.decide.budget import Priority
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Answer, Balancer, Gone, Ingress, Instance, PlaceAnswer, Unknown
from ccm.model.objects import Json, Node
from ccm.model.service import MOST_RANGES, SOURCE_RANGES, Feature, Service

pytestmark = pytest.mark.asyncio

SIZE = 250_000  # characters
LONG = [
    text * (SIZE // len(text)) for text in ("a", "1", ",", "[", "eyJ-", '\\"', "a=b,", "\x1b\n")
]
ITEMS = ("80", "{}", "k{}=v", "ip:203.0.113.{}", "cidr:10.0.0.0/{}")
LISTS = [",".join(map(item.format, range(1, SIZE // (len(item) + 3)))) for item in ITEMS]
"""Texts of many items: to compare each with every other one takes minutes."""
PATTERNS = [text * (SIZE // len(text)) for text in ("[", "*?", "~(a", "1 ", "a/")]
"""Texts that are slow as a pattern, a number, a network or a path."""
ODD_VALUES: tuple[Any, ...] = (
    None,
    [],
    {},
    "",
    -1,
    "x\x1b\n",
    [1, {"a": None}],
    {"a": [None]},
    1e300,
    True,
)
MOST_FIELDS = 60  # that are tried with each value; records of some clouds have hundreds
MOST_PORTS = 2500  # with node ports; a cluster has 2,768 of them
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


def nodes_elsewhere(harness: Harness) -> list[Node]:
    """Nodes of places that the cluster has no machines in; a kubelet may write any."""
    found = enumerate(harness.adapter.provider_ids_elsewhere())
    return [node(f"elsewhere-{at}", provider_id) for at, provider_id in found]


async def test_a_node_of_another_place_keeps_no_other_from_a_balancer(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    for odd in nodes_elsewhere(harness):
        backends = [odd, node_of(machine)]
        assert isinstance((await harness.describe(backends))[machine.node], Instance)
        await harness.until_done(harness.load_balancers.ensure, service(odd.name), backends)
        await harness.check_balancer(service(odd.name), [machine])
        await harness.until_done(harness.load_balancers.update_nodes, service(odd.name), backends)


async def test_a_node_of_another_place_keeps_no_other_from_its_route(harness: Harness) -> None:
    (machine,) = await harness.machines(1)
    for at, odd in enumerate(nodes_elsewhere(harness)):
        own = node_of(machine)
        own.raw["spec"]["podCIDRs"] = [f"10.244.{at}.0/24"]
        with suppress(CloudError):
            await harness.until_done(harness.routes.create, odd, "10.244.99.0/24")
        await harness.until_done(harness.routes.create, own, own.pod_cidrs[0])
        listed = await harness.call(harness.routes.list, [odd, own])
        assert (own.name, own.pod_cidrs[0]) in {(it.node, it.cidr) for it in listed}


class SpoiltRecord:
    """Puts `value` in the place of one field of what the cloud records of one thing.

    It is a record with one of its `names` and none of the `others`. `count` is how many fields the
    largest one had so far, however deep they are.
    """

    def __init__(self, names: Collection[str], others: Collection[str]) -> None:
        self._names, self._others = names, others
        self.field, self.count = 0, 0
        self.value: Any = None

    def __call__(self, answer: Any) -> Any:
        """The answer with the field spoilt, where it is JSON and has such a record."""
        if isinstance(answer, tuple):
            return (self(answer[0]), *answer[1:])
        return self._spoilt(deepcopy(answer)) if isinstance(answer, dict | list) else answer

    def _spoilt(self, part: Any) -> Any:
        text = orjson.dumps(part, default=str).decode()
        if not any(name in text for name in self._names):
            return part
        is_record = isinstance(part, dict) and not any(name in text for name in self._others)
        if is_record and len(part) > 1:
            places = [*_places(part)]
            self.count = max(self.count, len(places))
            for owner, key in places[self.field : self.field + 1]:
                owner[key] = self.value
            return part
        items = part.items() if isinstance(part, dict) else enumerate(part)
        for key, item in [*items]:
            if isinstance(item, dict | list):
                part[key] = self._spoilt(item)
        return part

    def values(self, each: int) -> Iterator[Any]:
        """Spoil field by field, with so many values each; the one that is spoilt with."""
        for offset, _ in product((0, 4, 7)[:each], range(MOST_FIELDS)):
            self.value = ODD_VALUES[(self.field + offset) % len(ODD_VALUES)]
            yield self.value
            if not self.count:
                raise Untestable("the answers are not JSON, or have no record of this one alone")
            self.field = (self.field + 1) % self.count


def _names(machine: Machine) -> tuple[str, str]:
    return machine.node, machine.provider_id.rpartition("/")[2]


def _places(part: Any) -> Iterator[tuple[Any, Any]]:
    """Every field of a record and of what is in it, by its owner and key."""
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, item in [*items]:
        yield part, key
        if isinstance(item, dict | list):
            yield from _places(item)


async def test_a_record_of_another_form_costs_the_others_nothing(harness: Harness) -> None:
    """A guest writes parts of what a cloud records, and a cloud may leave out others."""
    odd, other = await harness.machines(2)
    nodes = [node_of(odd), node_of(other)]
    expected = (await harness.describe(nodes))[other.node]
    assert isinstance(expected, Instance)
    spoilt = harness.gate.spoil = SpoiltRecord(_names(odd), _names(other))
    for value in spoilt.values(3):
        answers = await harness.describe(nodes)
        assert answers[other.node] == expected, (spoilt.field, value)
        answer = answers[odd.node]
        harness.check_texts([answer.why] if isinstance(answer, Unknown) else [])


@pytest.mark.parametrize("lacking", LACKING)
async def test_an_answer_without_what_is_there_harms_no_other(
    harness: Harness, lacking: Callable[[Any], Any]
) -> None:
    """A replica that lags behind, or what is before the cloud, may answer so to any one call."""
    theirs, machines = service("theirs"), await harness.machines(3)
    await harness.ensure(theirs, machines)
    before = set(await invoke(harness.adapter.balancer_resources))
    backends, lacks = [node_of(machine) for machine in machines], LackingAnswer(lacking)
    while lacks.is_next():
        await harness.restart()
        balancers, number = harness.load_balancers, lacks.number
        own, moved = (
            service(f"own-{number}", ports=[port(public, node_port=30000 + public + 2 * number)])
            for public in (443, 444)
        )
        await harness.until_done(balancers.ensure, own, backends)
        harness.gate.spoil = lacks
        for method, *arguments in (
            (balancers.ensure, moved, backends),
            (balancers.update_nodes, moved, backends),
            (balancers.delete, moved),
        ):
            with suppress(CloudError):
                await harness.until_done(method, *arguments)
        harness.gate.spoil = None
        await harness.check_balancer(theirs, machines)
        assert before <= set(await invoke(harness.adapter.balancer_resources))
        with suppress(CloudError):
            await harness.until_done(balancers.delete, moved)


@pytest.mark.parametrize("lacking", LACKING)
async def test_an_answer_without_what_is_there_moves_no_published_balancer(
    harness: Harness, lacking: Callable[[Any], Any]
) -> None:
    """Its clients know the address, and no one brings it back once another one is published."""
    own, machines = service("own"), await harness.machines(3)
    backends, lacks = [node_of(machine) for machine in machines], LackingAnswer(lacking)
    made = await harness.until_done(harness.load_balancers.ensure, own, backends)
    own.raw["status"] = {"loadBalancer": {"ingress": list(map(_written, made.ingress))}}
    before = set(await invoke(harness.adapter.balancer_resources))
    while lacks.is_next():
        await harness.restart()
        harness.gate.spoil = lacks
        with suppress(CloudError):
            other = await harness.until_done(harness.load_balancers.ensure, own, backends)
            assert other.ingress == made.ingress, f"with answer {lacks.number}"
        await harness.restart()
        again = await harness.until_done(harness.load_balancers.ensure, own, backends)
        assert again.ingress == made.ingress
        assert set(await invoke(harness.adapter.balancer_resources)) == before
        await harness.check_balancer(own, machines)


@pytest.mark.parametrize("lacking", LACKING)
async def test_what_one_answer_lacked_is_not_kept(
    harness: Harness, lacking: Callable[[Any], Any]
) -> None:
    """A process that goes on does what it would have done with the next answer."""
    machines, lacks = await harness.machines(3), LackingAnswer(lacking)
    backends = [node_of(machine) for machine in machines]
    asked = [service(f"own-{at}", ports=[port(80 + at, node_port=30000 + at)]) for at in range(2)]

    async def begin() -> list[str]:
        await harness.restart()
        await harness.describe(backends)  # with a login, whose pause is not of these answers
        harness.gate.spoil, start = lacks if lacks.number else None, len(harness.gate.answered)
        with suppress(CloudError):
            await harness.describe(backends)
        with suppress(CloudError):
            await harness.until_done(harness.load_balancers.ensure, asked[0], backends)
        harness.gate.spoil = None
        return harness.gate.answered[start:]

    async def go_on() -> None:
        answers = await harness.describe(backends)
        assert all(isinstance(answer, Instance) for answer in answers.values())
        for own in asked:
            await harness.ensure(own, machines)
            await harness.until_done(harness.load_balancers.delete, own)

    operations = await begin()
    await go_on()
    for _ in lacks.first_of_each(operations):
        await begin()
        await go_on()


@pytest.mark.parametrize("lacking", LACKING)
async def test_an_answer_without_what_is_there_leaves_nothing_of_a_deletion(
    harness: Harness, lacking: Callable[[Any], Any]
) -> None:
    """What is left then, such as an open port, no one looks for any more.

    The controllers delete twice, and again what failed or where nothing was written.
    """
    machines, lacks = await harness.machines(3), LackingAnswer(lacking)
    backends = [node_of(machine) for machine in machines]
    before = set(await invoke(harness.adapter.balancer_resources))

    async def delete() -> list[str]:
        await harness.restart()
        balancers, own, is_deleted = harness.load_balancers, service("own"), False
        made = await harness.until_done(balancers.ensure, own, backends)
        own.raw["status"] = {"loadBalancer": {"ingress": list(map(_written, made.ingress))}}
        gate, start = harness.gate, len(harness.gate.calls)
        gate.spoil, answered = lacks if lacks.number else None, len(gate.answered)
        with suppress(CloudError):
            await harness.until_done(balancers.delete, own)
            has_written = bool(harness.writes_since(start))
            await harness.until_done(balancers.delete, own)
            is_deleted = has_written
        gate.spoil, operations = None, gate.answered[answered:]
        for _ in range(0 if is_deleted else 2):
            await harness.until_done(balancers.delete, own)
        return operations

    for number in lacks.first_of_each(await delete()):
        await delete()
        left = set(await invoke(harness.adapter.balancer_resources)) - before
        assert not left, f"with answer {number}"


def _written(way: Ingress) -> Json:
    """One of a status' addresses as the API server keeps it."""
    return {"ip": way.ip} if way.ip else {"hostname": way.hostname}


async def test_anothers_record_answers_a_write_and_is_not_taken_for_ones_own(
    harness: Harness,
) -> None:
    """What is before the cloud may mix up two answers; what was written is found the next time."""
    theirs, machines = service("theirs"), await harness.machines(3)
    mixed = harness.gate.mix_up = AnothersAnswer()
    for asked, some in ((theirs, machines[:1]), (service("theirs", ports=[port(81)]), machines)):
        await harness.ensure(asked, some)
    backends = [node_of(machine) for machine in machines]
    published = await harness.until_done(harness.load_balancers.ensure, theirs, backends)
    before = set(await invoke(harness.adapter.balancer_resources))
    while mixed.is_next():
        await harness.restart()
        harness.gate.mix_up, balancers, number = mixed, harness.load_balancers, mixed.number
        own, moved = (
            service(f"own-{number}", ports=[port(public, node_port=30000 + public + 2 * number)])
            for public in (443, 444)
        )
        for asked in (own, moved):
            with suppress(CloudError):
                made = await harness.until_done(balancers.ensure, asked, backends)
                assert not {*made.ingress} & {*published.ingress}
        with suppress(CloudError):
            await harness.until_done(balancers.update_nodes, moved, backends)
        harness.gate.mix_up = None
        await harness.check_balancer(theirs, machines)
        await harness.ensure(moved, machines)
        await harness.until_done(balancers.delete, moved)
        assert set(await invoke(harness.adapter.balancer_resources)) == before


async def test_a_record_of_anothers_balancer_of_another_form_changes_nothing_of_ours(
    harness: Harness,
) -> None:
    """What the account has besides may be newer than the provider: a list is not known at worst."""
    own, theirs, machines = service("own"), service("theirs"), await harness.machines(1)
    names = [harness.load_balancers.name_for(it) for it in (theirs, own)]
    await invoke(harness.adapter.create_foreign_balancer, names[0], theirs, Owner.OTHER_CLUSTER)
    await harness.ensure(own, machines)
    backends, outcomes = [node_of(machine) for machine in machines], list[type]()
    spoilt = harness.gate.spoil = SpoiltRecord(names[:1], [names[1], own.uid])
    async with harness.no_change():
        for _ in spoilt.values(1):
            try:
                made = await harness.until_done(harness.load_balancers.ensure, own, backends)
                outcomes.append(type(made))
            except CloudError as error:
                outcomes.append(type(error))
    assert Balancer in outcomes
    assert not [kind for kind in outcomes if issubclass(kind, Refused)]


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
        except CloudError as error:
            harness.check_texts([str(error)])
            continue
        harness.check_texts(made.warnings)
        if isinstance(harness.load_balancers, ChecksServices):
            harness.load_balancers.check_service(odd)


async def test_lists_in_a_service_are_read_in_time(harness: Harness) -> None:
    """In each annotation that the provider reads, also for each port; nothing is written."""

    def keep_back() -> None:
        raise CloudError("the kit keeps it back")

    node_ports = [port(number, node_port=30000 + number) for number in range(1, MOST_PORTS)]
    ranges = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(MOST_RANGES)]
    services = [
        service("odd", ports=[*node_ports, *({**it, "nodePort": 0} for it in node_ports)]),
        service("odd", ports=node_ports, loadBalancerSourceRanges=ranges),
    ]
    services += [
        service("odd", {key: text}, ports=node_ports)
        for key in (*harness.adapter.annotation_keys(), SOURCE_RANGES)
        for text in (*LISTS, *PATTERNS)
    ]
    for odd in services:
        harness.gate.before_write = keep_back
        with suppress(CloudError):
            await in_time(harness.call(harness.load_balancers.ensure, odd, []))


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


async def test_who_shares_the_balancer_of_another_changes_nothing_of_it(harness: Harness) -> None:
    """With a port of its own it joins, leaves, joins again and is deleted; or it is refused.

    So it is with a port of the other's, which it cannot have.
    """
    features = harness.load_balancers.supported_features
    ranges: dict[str, Any] = {"loadBalancerSourceRanges": ["192.0.2.0/24"]}
    theirs = service("theirs", **ranges if Feature.SOURCE_RANGES in features else {})
    machines = await harness.machines(1)
    await harness.ensure(theirs, machines)
    backends, ports = [node_of(machine) for machine in machines], [port(443, node_port=30443)]
    name = harness.load_balancers.name_for(theirs)
    for number, (annotations, spec) in enumerate(await invoke(harness.adapter.references_to, name)):
        shares = service(f"hostile-{number}", annotations, **{"ports": ports, **spec})
        alone = service(f"hostile-{number}", ports=ports)
        for asked in (shares, alone, shares):
            with suppress(Refused):
                await harness.until_done(harness.load_balancers.ensure, asked, backends)
            await harness.check_balancer(theirs, machines, is_shared=True)
        for asked in (shares, service(f"hostile-{number}", annotations, **spec)):
            with suppress(Refused):
                await harness.until_done(harness.load_balancers.ensure, asked, backends)
            await harness.until_done(harness.load_balancers.delete, asked)
            await harness.check_balancer(theirs, machines)


async def test_no_annotation_before_the_deletion_leaves_anything_behind(harness: Harness) -> None:
    """Where annotations are restricted: else one Service after another takes all that there is."""
    await harness.restart(restricts_annotations=True)
    before = set(await invoke(harness.adapter.balancer_resources))
    for key in sorted(await invoke(harness.adapter.annotation_keys)):
        await harness.ensure(service(), [])
        asked = service("web", {key: "true"})
        await harness.until_done(harness.load_balancers.delete, asked)
        assert set(await invoke(harness.adapter.balancer_resources)) == before, key


async def test_a_service_whose_calls_wait_for_their_turn_holds_up_no_other(
    harness: Harness,
) -> None:
    """At whichever of its calls: what others wait for is in no one's turn."""
    (machine,) = await harness.machines(1)
    nodes = [node_of(machine)]
    theirs, own = (
        service(name, ports=[port(number, node_port=30000 + number)])
        for name, number in (("theirs", 80), ("own", 443))
    )

    async def until_done(method: Callable[..., Any], asked: Service, *backends: Any) -> None:
        with with_priority(Priority.LB_ENSURE, asked.name):
            await harness.until_done(method, asked, *backends)

    for number in count(1):
        await harness.restart()
        balancers, held = harness.load_balancers, HeldBack("theirs", number)
        harness.gate.held_back = held
        waiting = asyncio.create_task(until_done(balancers.ensure, theirs, nodes))
        await asyncio.wait(
            [waiting, asyncio.wrap_future(held.begun)], return_when=asyncio.FIRST_COMPLETED
        )
        await until_done(balancers.ensure, own, nodes)
        held.ended.set_result(None)
        await waiting
        for asked in (theirs, own):
            await until_done(balancers.delete, asked)
        if not held.begun.done():
            return
