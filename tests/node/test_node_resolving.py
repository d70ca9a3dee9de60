"""Which machine a Node is (rows NL16 to NL19), as the simulated provider finds it.

Upstream's controllers do this themselves; here every provider does, by the contract of `Instances`.
"""

from ccm.errors import CloudError
from ccm.model.cloud import Gone, Instance, Unknown
from ccm.providers.simulated.api import LookupResult
from ccm.providers.simulated.instances import MachineQuery, queries_for, read_answers
from tests.edge_cases.rows import row
from tests.unit.nodes import node, with_provider_id

BY_NAME = MachineQuery("names", {"node-1": "node-1"})


@row("NL16")
def test_a_node_is_looked_up_by_the_id_that_it_has() -> None:
    named = node(with_provider_id("simulated://7"), name="named")
    (by_id, by_name), _ = queries_for([named, node()])
    assert by_id == MachineQuery("ids", {"named": "7"})
    assert by_name == BY_NAME


@row("NL17")
def test_a_machine_found_by_name_says_its_id() -> None:
    record = {"id": "12345", "name": "node-1", "power": "running", "addresses": []}
    found = read_answers(BY_NAME, LookupResult([record], frozenset()))
    assert found == {"node-1": Instance("simulated://12345")}


@row("NL18")
def test_a_machine_that_is_not_found_is_gone_and_nothing_else() -> None:
    found = read_answers(BY_NAME, LookupResult([], frozenset({"node-1"})))
    assert found == {"node-1": Gone("the cloud has no machine node-1")}


@row("NL19")
def test_another_failure_keeps_its_words_and_is_no_answer() -> None:
    found = read_answers(BY_NAME, CloudError("unknown error"))
    assert found == {"node-1": Unknown("unknown error")}
