"""Providers that are wrong about machines."""

from .mutant import Mutant

INSTANCES = (
    Mutant(
        "an error is taken for a machine that is gone",
        "instances.py",
        "dict.fromkeys(asked, Unknown(str(failure)))",
        "dict.fromkeys(asked, Gone(str(failure)))",
        "batches::test_a_failed_call_leaves_only_its_own_nodes_unknown",
    ),
    Mutant(
        "when everything failed, all machines are gone",
        "instances.py",
        "raise failures[0]",
        "return dict.fromkeys(answers, Gone('nothing was found'))",
        "batches::test_when_nothing_could_be_read_nothing_is_gone",
    ),
    Mutant(
        "two answers, never three: what is no machine of ours is gone",
        "instances.py",
        'node.name: Unknown(f"{node.provider_id} names',
        'node.name: Gone(f"{node.provider_id} names',
        "existence::test_a_node_of_another_cloud_is_unknown",
    ),
    Mutant(
        "an id that cannot be is looked up in the list, and so gone",
        "instances.py",
        'rest.replace("-", "").isalnum()',
        "bool(rest)",
        "existence::test_an_id_that_names_no_machine_is_unknown",
    ),
    Mutant(
        "a terminated machine exists",
        "instances.py",
        'if record["state"] != "terminated"]\n    if len',
        "]\n    if len",
        "existence::test_a_terminated_machine_is_gone",
    ),
    Mutant(
        "a stopped machine is gone",
        "instances.py",
        'if record["state"] != "terminated"]\n    if len',
        'if record["state"] == "running"]\n    if len',
        "existence::test_a_stopped_machine_exists_and_is_off_until_it_is_started",
    ),
    Mutant(
        "a stopped machine is on",
        "instances.py",
        '"stopped": PowerState.STOPPED',
        '"stopped": PowerState.RUNNING',
        "existence::test_a_stopped_machine_exists_and_is_off_until_it_is_started",
    ),
    Mutant(
        "a machine that never existed is not known for ever",
        "instances.py",
        "if value in found.absent:",
        "if not value:",
        "existence::test_a_machine_that_never_existed_is_gone",
    ),
    Mutant(
        "a name counts although there is an id",
        "instances.py",
        "for n in nodes if machine_id(n)}\n"
        "        by_name = {node.name: node.name for node in nodes if not node.provider_id}",
        "for n in nodes if not n.name}\n        by_name = {node.name: node.name for node in nodes}",
        "existence::test_an_id_goes_before_a_name",
    ),
    Mutant(
        "of two machines of one name, the first is it",
        "instances.py",
        "if len(living) > 1:",
        "if len(living) > 9:",
        "existence::test_a_name_that_two_machines_have_is_unknown",
    ),
    Mutant(
        "the addresses are left out",
        "instances.py",
        "for kind, ip in addresses),",
        "for kind, ip in addresses[:0]),",
        "existence::test_a_running_machine_is_described_by_id",
    ),
    Mutant(
        "the zone is the region",
        "instances.py",
        'zone=record["zone"]',
        'zone=record["region"]',
        "existence::test_a_running_machine_is_found_by_name_while_its_node_has_no_id",
    ),
    Mutant(
        "one call a Node",
        "instances.py",
        "size = list(asked.items()), self.batch_size",
        "size = list(asked.items()), 1",
        "batches::test_nodes_cost_a_call_a_batch",
    ),
    Mutant(
        "one failed call is the failure of all",
        "instances.py",
        "failures.append(failure)",
        "raise",
        "batches::test_a_failed_call_leaves_only_its_own_nodes_unknown",
    ),
    Mutant(
        "one machine that is gone spoils its batch",
        "instances.py",
        "values=sorted(asked.values()))\n",
        "values=sorted(asked.values()))\n"
        "        if found.absent:\n"
        "            raise CloudError('not found')\n",
        "batches::test_an_absent_machine_does_not_spoil_its_batch",
    ),
)
