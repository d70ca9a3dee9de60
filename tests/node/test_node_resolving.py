"""Which machine a Node is (rows NL16 to NL19), as the simulated provider finds it.

Upstream's controllers do this themselves; here every provider does, by the contract of `Instances`.
"""

from collections.abc import Sequence
from typing import Any

from ccm.errors import CloudError
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.objects import Json
from ccm.providers.simulated.api import LookupResult
from ccm.providers.simulated.instances import SimulatedInstances
from tests.edge_cases.rows import row
from tests.worlds.nodes import node, with_provider_id


class Api:
    """Knows some machines, by name and by ID, and what it was asked for; names can be broken."""

    def __init__(self, *records: Json, are_names_broken: bool = False) -> None:
        self.records, self.are_names_broken = records, are_names_broken
        self.asked: dict[str, list[str]] = {}

    async def machines(self, by: str, values: Sequence[str]) -> LookupResult:
        self.asked[by] = list(values)
        if by == "names" and self.are_names_broken:
            raise CloudError("unknown error")
        found = [one for one in self.records if one[by.removesuffix("s")] in values]
        known = {one[by.removesuffix("s")] for one in found}
        return LookupResult(found, frozenset(set(values) - known))


def machine(machine_id: str, name: str) -> Json:
    return {"id": machine_id, "name": name, "power": "running", "addresses": []}


async def describe(api: Any) -> dict[str, Answer]:
    """What is said of a Node with an ID and of one without."""
    nodes = [node(with_provider_id("simulated://7"), name="named"), node()]
    return dict(await SimulatedInstances(api, 100).describe(nodes))


@row("NL16")
async def test_a_node_is_looked_up_by_the_id_that_it_has() -> None:
    api = Api(machine("7", "another"))
    assert (await describe(api))["named"] == Instance("simulated://7")
    assert api.asked == {"ids": ["7"], "names": ["node-1"]}


@row("NL17")
async def test_a_machine_found_by_name_says_its_id() -> None:
    answers = await describe(Api(machine("12345", "node-1")))
    assert answers["node-1"] == Instance("simulated://12345")


@row("NL18")
async def test_a_machine_that_is_not_found_is_gone_and_nothing_else() -> None:
    assert (await describe(Api()))["node-1"] == Gone("the cloud has no machine node-1")


@row("NL19")
async def test_another_failure_keeps_its_words_and_is_no_answer() -> None:
    answers = await describe(Api(machine("7", "named"), are_names_broken=True))
    assert answers == {"named": Instance("simulated://7"), "node-1": Unknown("unknown error")}
