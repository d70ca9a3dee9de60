"""Machines of a cloud: found in one read, and gone only where another kind of read says so too."""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence

import pytest

from ccm.cloud.machines import MOST_PROOFS, Listing, MachineLookup, join_reasons
from ccm.errors import CloudError, ConfigurationFault
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.objects import Node
from tests.support.nodes import node, with_provider_id

ONE, ENDED, GONE = Instance("toy://1"), Gone("it ended", is_final=True), Gone("404")
FAILED = CloudError("boom")

Records = Listing[str, Sequence[Answer]]


class Toy(MachineLookup[Records, Answer]):
    """Lists what it is given, by ID or name; `proofs` are what the other kind of read says."""

    provider_ids = re.compile("toy://.*")
    batch_size = 2

    def __init__(
        self,
        listed: Mapping[str, Sequence[Answer]],
        proofs: Mapping[str, Answer | CloudError] | None = None,
        reasons: Sequence[str] = (),
    ) -> None:
        self.listed, self.proofs, self.reasons = listed, proofs or {}, reasons
        self.reads: list[list[str]] = []
        self.proven: list[str] = []

    def machine_of(self, provider_id: str) -> str:
        return provider_id if provider_id[-1].isalnum() else ""

    async def read(self, nodes: Sequence[Node]) -> Records:
        self.reads.append([node.name for node in nodes])
        if "broken" in self.reads[-1]:
            raise FAILED
        return Listing(dict(self.listed))

    async def find(self, node: Node, listing: Records) -> Sequence[Answer] | Answer:
        return listing.by_id.get(node.provider_id or node.name, [])

    def label(self, machine: Answer) -> str:
        return machine.provider_id if isinstance(machine, Instance) else "?"

    async def instance(self, node: Node, machine: Answer, listing: Records) -> Answer:
        return machine

    async def why_incomplete(self, nodes: Sequence[Node], listing: Records) -> Sequence[str]:
        return self.reasons

    async def prove_gone(self, node: Node, listing: Records) -> Answer:
        self.proven.append(node.name)
        proof = self.proofs[node.name]
        if isinstance(proof, CloudError):
            raise proof
        return proof


def with_id(name: str, provider_id: str = "") -> Node:
    return node(with_provider_id(provider_id or f"toy://{name}"), name=name)


@pytest.mark.parametrize(
    ("listed", "proof", "expected"),
    [
        ([ONE], None, ONE),
        ([], GONE, GONE),
        ([], FAILED, Unknown("boom")),
        ([], Unknown("no"), Unknown("no")),
        ([], ONE, Unknown("one read finds no machine, another one does")),
        ([ENDED], ENDED, ENDED),
        ([ENDED], GONE, Gone("it ended")),
        ([], ENDED, Gone("it ended")),
        ([ENDED], ONE, Unknown("one read finds no machine, another one does")),
        ([ENDED], FAILED, Unknown("boom")),
        (
            [ONE, Instance("toy://2")],
            None,
            Unknown("several machines are node 1: toy://1, toy://2"),
        ),
    ],
)
async def test_what_two_kinds_of_read_say_together(
    listed: Sequence[Answer], proof: Answer | CloudError | None, expected: Answer
) -> None:
    toy = Toy({"toy://1": listed}, {"1": proof} if proof else {})
    assert await toy.describe([with_id("1")]) == {"1": expected}
    assert toy.proven == (["1"] if proof else [])


async def test_nothing_is_asked_about_what_is_not_this_clouds() -> None:
    toy = Toy({"toy://1": [ONE]})
    answers = await toy.describe(
        [with_id("1"), with_id("a", "aws:///i-1"), with_id("b", "toy://?")]
    )
    assert answers == {
        "1": ONE,
        "a": Unknown("provider ID aws:///i-1 is of another cloud"),
        "b": Unknown("provider ID toy://? names no machine"),
    }
    assert toy.reads == [["1"]]


async def test_a_batch_that_failed_leaves_the_others_known() -> None:
    toy = Toy({"toy://1": [ONE]}, {"2": GONE})
    answers = await toy.describe([with_id("1"), with_id("2"), with_id("broken"), with_id("3")])
    assert answers == {"1": ONE, "2": GONE, "broken": Unknown("boom"), "3": Unknown("boom")}
    with pytest.raises(CloudError, match="boom"):
        await toy.describe([with_id("broken")])


async def test_a_list_that_may_lack_something_proves_nothing() -> None:
    toy = Toy({"toy://1": [ONE]}, {"2": GONE}, ["a", "b", "a", "c", "d"])
    answers = await toy.describe([with_id("1"), with_id("2")])
    assert answers == {"1": ONE, "2": Unknown("a; b; c")}
    assert toy.proven == []


async def test_a_record_that_lacks_a_field_costs_its_own_node_an_answer() -> None:
    class Odd(Toy):
        async def instance(self, node: Node, machine: Answer, listing: Records) -> Answer:
            sizes = {"toy://1": "large"}
            assert isinstance(machine, Instance)
            return Instance(machine.provider_id, type=sizes[machine.provider_id])

    toy = Odd({"toy://1": [ONE], "toy://2": [Instance("toy://2")]})
    assert await toy.describe([with_id("1"), with_id("2")]) == {
        "1": Instance("toy://1", type="large"),
        "2": Unknown("the cloud's record is not understood: KeyError: 'toy://2'"),
    }


async def test_without_an_id_what_the_cloud_calls_ended_needs_no_proof() -> None:
    toy = Toy({"new": [ENDED]}, {"none": GONE})
    asked = [node(name="new"), node(name="none")]
    assert await toy.describe(asked) == {"new": ENDED, "none": GONE}
    assert toy.proven == ["none"]


def test_few_reasons_are_shown() -> None:
    assert join_reasons([]) == ""
    assert join_reasons("abcb") == "a; b; c"


class Marked(Toy):
    """Its machines' marks are the last part of their IDs."""

    mark_kinds = ("tag",)

    def marks(self, machine: Answer) -> Collection[str]:
        return {f"tag:{self.label(machine).partition('#')[2]}"}


THEIRS, OURS = Instance("toy://1#theirs"), Instance("toy://2#ours")
FOREIGN = "machine toy://1#theirs does not belong to this cluster: it lacks tag:ours"


async def test_a_machine_without_the_marks_is_no_nodes_by_name_and_by_id() -> None:
    """Nor does it stand beside the one that has them."""
    toy = Marked({"toy://1": [THEIRS], "a": [THEIRS], "b": [THEIRS, OURS]}, {"4": GONE})
    toy.require_marks(["tag:ours"])
    asked = [with_id("1"), node(name="a"), node(name="b"), with_id("4"), with_id("x", "aws://1")]
    answers = await toy.describe(asked)
    assert (answers["1"], answers["a"], answers["b"]) == (Unknown(FOREIGN), Unknown(FOREIGN), OURS)
    assert answers["4"] == GONE
    verdicts = dict(await toy.foreign(asked))
    assert verdicts.pop("x") == "provider ID aws://1 is of another cloud"
    assert verdicts == {"1": FOREIGN, "a": FOREIGN, "b": ""}


async def test_a_machine_whose_marks_cannot_be_read_costs_the_others_nothing() -> None:
    class Odd(Marked):
        def marks(self, machine: Answer) -> Collection[str]:
            return {f"tag:{self.label(machine).split('#')[1]}"}

    toy = Odd({"a": [Instance("toy://3")], "b": [OURS]}, {})
    toy.require_marks(["tag:ours"])
    asked, why = (
        [node(name="a"), node(name="b")],
        "the cloud's record is not understood: IndexError",
    )
    answers = await toy.describe(asked)
    assert isinstance(answers["a"], Unknown)
    assert answers["a"].why.startswith(why)
    assert answers["b"] == OURS
    verdicts = await toy.foreign(asked)
    assert verdicts["a"].startswith(why)
    assert verdicts["b"] == ""


async def test_nodes_about_which_nothing_can_be_asked_cost_no_read() -> None:
    """A cloud need not answer about no node at all. Nothing shows that they are the cluster's."""
    toy = Marked({"a": [OURS]}, {})
    toy.require_marks(["tag:ours"])
    other = [with_id("x", "aws://1"), with_id("y", "toy://?")]
    why = {
        "x": "provider ID aws://1 is of another cloud",
        "y": "provider ID toy://? names no machine",
    }
    assert await toy.foreign([*other, node(name="a")]) == {"a": ""} | why
    assert await toy.foreign(other) == why
    assert toy.reads == [["a"]]


@pytest.mark.parametrize(
    ("given", "required"),
    [
        ([], {"tag:implied"}),
        (["any"], set()),
        (["tag:a"], {"tag:implied", "tag:a"}),
        (["any", "tag:a"], {"tag:a"}),
    ],
)
def test_marks_that_are_given_add_to_those_that_the_configuration_implies(
    given: Sequence[str], required: set[str]
) -> None:
    toy = Marked({})
    toy.required_marks = frozenset({"tag:implied"})
    toy.require_marks(given)
    assert toy.required_marks == required
    with pytest.raises(ConfigurationFault, match="'pool:a' is no mark of this cloud's machines"):
        toy.require_marks(["pool:a"])


async def test_of_machines_that_are_not_there_some_are_asked_for_at_a_time() -> None:
    """Each takes a call: of hundreds that wait for one, another read would be the last."""
    names, at_once = [f"n{number}" for number in range(3 * MOST_PROOFS)], list[int]()

    class Counting(Toy):
        batch_size, under_way = len(names), 0

        async def prove_gone(self, node: Node, listing: Records) -> Answer:
            self.under_way += 1
            at_once.append(self.under_way)
            await asyncio.sleep(0)
            self.under_way -= 1
            return await super().prove_gone(node, listing)

    answers = await Counting({}, dict.fromkeys(names, GONE)).describe(list(map(with_id, names)))
    assert answers == dict.fromkeys(names, GONE)
    assert max(at_once) == MOST_PROOFS


async def test_who_looks_a_machine_up_gets_no_proof() -> None:
    """It takes a call each, before all others: kubelets may share IDs that they made up."""
    toy = Toy({"toy://1": [ONE]}, {"3": GONE})
    nodes = [with_id("1"), with_id("3"), with_id("4", "other://4")]
    found = await toy.look_up(nodes)
    assert toy.proven == []
    assert found["1"] == ONE
    assert all(isinstance(found[name], Unknown) for name in ("3", "4"))
    assert (await toy.describe(nodes))["3"] == GONE
