"""Providers that are wrong about machines, or start, name or end themselves wrongly."""

FOUND = '        found = self._api.list("ListMachines", by=by, values=sorted(values))\n'

INSTANCES = (
    (
        "an error is taken for a machine that is gone",
        FOUND,
        "        from ccm.errors import CloudError\n"
        "        try:\n"
        f"    {FOUND}"
        "        except CloudError as failure:\n"
        "            return dict.fromkeys(values, Gone(str(failure)))\n",
        "instances::test_a_failed_call_leaves_only_its_own_nodes_unknown",
    ),
    (
        "when everything failed, all machines are gone",
        "return answers | look_up(self.batch_size, *lookups)",
        "try:\n"
        "            return answers | look_up(self.batch_size, *lookups)\n"
        "        except Exception:\n"
        "            return {node.name: Gone('nothing was found') for node in nodes}",
        "instances::test_when_nothing_could_be_read_nothing_is_gone",
    ),
    (
        "two answers, never three: what is no machine of ours is gone",
        'node.name: Unknown(f"{node.provider_id} names',
        'node.name: Gone(f"{node.provider_id} names',
        "instances::test_a_node_of_another_cloud_is_unknown",
    ),
    (
        "an id that cannot be is looked up in the list, and so gone",
        'rest.replace("-", "").isalnum()',
        "bool(rest)",
        "instances::test_an_id_that_names_no_machine_is_unknown",
    ),
    (
        "a terminated machine exists",
        'if record["state"] != "terminated"]\n    if len',
        "]\n    if len",
        "instances::test_a_terminated_machine_is_gone",
    ),
    (
        "a machine of another cluster is a Node's that writes its id",
        'if living and living[0]["tags"]',
        'if living and by == "name" and living[0]["tags"]',
        "instances::test_a_machine_without_our_mark_is_no_nodes_however_it_is_found",
    ),
    (
        "a stopped machine is gone",
        'if record["state"] != "terminated"]\n    if len',
        'if record["state"] == "running"]\n    if len',
        "instances::test_a_stopped_machine_exists_and_is_off_until_it_is_started",
    ),
    (
        "a stopped machine is on",
        '"stopped": PowerState.STOPPED',
        '"stopped": PowerState.RUNNING',
        "instances::test_a_stopped_machine_exists_and_is_off_until_it_is_started",
    ),
    (
        "a machine that never existed is not known for ever",
        "if value in found.not_found:",
        "if not value:",
        "instances::test_a_machine_that_never_existed_is_gone",
    ),
    (
        "a name counts although there is an id",
        "for n in nodes if (one := self.machine_of(n.provider_id))}\n"
        "        by_name = {node.name: node.name for node in nodes if not node.provider_id}",
        "for n in nodes if not n.name}\n        by_name = {node.name: node.name for node in nodes}",
        "instances::test_an_id_goes_before_a_name",
    ),
    (
        "of two machines of one name, the first is it",
        "if len(living) > 1:",
        "if len(living) > 9:",
        "instances::test_a_name_that_two_machines_have_is_unknown",
    ),
    (
        "the addresses are left out",
        "for kind, ip in addresses),",
        "for kind, ip in addresses[:0]),",
        "instances::test_a_running_machine_is_described_by_id",
    ),
    (
        "the zone is the region",
        'zone=record["zone"]',
        'zone=record["region"]',
        "instances::test_a_running_machine_is_found_by_name_while_its_node_has_no_id",
    ),
    (
        "one call a Node",
        "look_up(self.batch_size, *lookups)",
        "look_up(1, *lookups)",
        "instances::test_nodes_cost_a_call_a_batch",
    ),
    (
        "one failed call is the failure of all",
        "return answers | look_up(self.batch_size, *lookups)",
        "from ccm.cloud.lookup import batches\n"
        "        for asked in lookups:\n"
        "            for some in batches(list(asked.values.items()), self.batch_size):\n"
        "                found = asked.read([value for _, value in some])\n"
        "                answers |= {name: found[value] for name, value in some}\n"
        "        return answers",
        "instances::test_a_failed_call_leaves_only_its_own_nodes_unknown",
    ),
    (
        "one machine that is gone spoils its batch",
        FOUND,
        f"{FOUND}        if found.not_found:\n"
        "            from ccm.errors import CloudError\n"
        "            raise CloudError('not found')\n",
        "instances::test_an_absent_machine_does_not_spoil_its_batch",
    ),
)

PROVIDER = (
    (
        "a start writes to the cloud",
        "        cluster = context.cluster_name\n",
        "        cluster = context.cluster_name\n"
        "        connect(account).request('CreatePools', id='hello', backends=[], tags={})\n",
        "provider::test_starting_it_writes_nothing_to_the_cloud",
    ),
    (
        "a configuration that is not understood is a stack trace",
        "except (ValueError, TypeError, AttributeError) as wrong:",
        "except ZeroDivisionError as wrong:",
        "provider::test_a_configuration_it_cannot_use_is_told_as_faults",
    ),
    (
        "it goes by another name",
        'name = "mutant"',
        'name = "other"',
        "provider::test_it_has_a_name_and_knows_what_is_not_its_own",
    ),
    (
        "a quota allows no call",
        "burst=10",
        "burst=0",
        "provider::test_it_declares_what_the_cloud_allows",
    ),
    (
        "it can be ended once",
        '        """There is nothing to give back."""\n',
        "        del self.name\n",
        "provider::test_it_can_be_closed_twice_and_started_again",
    ),
)
