"""Providers that are wrong about machines, or start, name or end themselves wrongly."""

FIRST = "    def machine_of(self, provider_id: str) -> str:\n"


def described(*lines: str) -> tuple[str, str]:
    """What is done instead of describing Nodes; `there` describes them as usual."""
    body = ["from ccm.errors import CloudError", "there = super().describe", *lines]
    return FIRST, "\n".join(
        ["    async def describe(self, nodes):", *(f"        {line}" for line in body), "", FIRST]
    )


INSTANCES = (
    (
        "an error is taken for a machine that is gone",
        *described(
            "found = await there(nodes)",
            "return {k: Gone('x') if isinstance(v, Unknown) else v for k, v in found.items()}",
        ),
        "instances::test_a_failed_call_leaves_only_its_own_nodes_unknown",
    ),
    (
        "when everything failed, all machines are gone",
        *described(
            "try:",
            "    return await there(nodes)",
            "except CloudError:",
            "    return {node.name: Gone('nothing was found') for node in nodes}",
        ),
        "instances::test_when_nothing_could_be_read_nothing_is_gone",
    ),
    (
        "two answers, never three: what is no machine of ours is gone",
        *described(
            "odd = {n.name: Gone('x') for n in nodes if n.is_foreign(self.provider_ids)}",
            "return await there(nodes) | odd",
        ),
        "instances::test_a_node_of_another_cloud_is_unknown",
    ),
    (
        "an id that cannot be is looked up in the list, and so gone",
        "([a-z0-9-]+)",
        "(.+)",
        "instances::test_an_id_that_names_no_machine_is_unknown",
    ),
    (
        "a terminated machine exists",
        "return Gone(str(error))",
        "return Instance(node.provider_id)",
        "instances::test_a_terminated_machine_is_gone",
    ),
    (
        "a machine of another cluster is a Node's that writes its id",
        "if not self._is_ours(machine):",
        "if not machine:",
        "instances::test_a_machine_without_our_mark_is_no_nodes_however_it_is_found",
    ),
    (
        "what was no machine once is none for ever",
        *described(
            "found, lost = await there(nodes), getattr(self, 'lost', {})",
            "self.lost = lost | {k: v for k, v in found.items() if not isinstance(v, Instance)}",
            "return found | {k: v for k, v in self.lost.items() if k in found}",
        ),
        "untrusted::test_what_one_answer_lacked_is_not_kept",
    ),
    (
        "a list that lacks a machine is proof enough",
        "        try:\n            machine = await self._api.get(",
        '        return Gone("it is not listed")\n'
        "        try:\n            machine = await self._api.get(",
        "instances::test_a_list_of_before_a_machine_was_made_proves_nothing",
    ),
    (
        "an ID of another form than usual is the failure of all",
        'return found[1] if found else ""',
        'return f"m-{int(found[1][2:])}" if found else ""',
        "untrusted::test_a_node_of_long_texts_costs_the_others_nothing",
    ),
    (
        "a stopped machine is not looked at",
        "return [machine] if machine else []",
        'return [machine] if machine and machine["state"] == "running" else []',
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
        "return Gone(str(error))",
        "return Unknown(str(error))",
        "instances::test_a_machine_that_never_existed_is_gone",
    ),
    (
        "a name counts although there is an id",
        "if node.provider_id:",
        "if not node:",
        "instances::test_an_id_goes_before_a_name",
    ),
    (
        "of two machines of one name, the first is it",
        "return [machine for machine in named if self._is_ours(machine)]",
        "return [machine for machine in named if self._is_ours(machine)][:1]",
        "instances::test_a_name_that_two_machines_have_is_unknown",
    ),
    (
        "the addresses are left out",
        'addresses=(NodeAddress(AddressType.INTERNAL_IP, machine["ip"]),)',
        "addresses=()",
        "instances::test_a_running_machine_is_described_by_id",
    ),
    (
        "the zone is the region",
        'zone=machine["zone"]',
        'zone=machine["region"]',
        "instances::test_a_running_machine_is_found_by_name_while_its_node_has_no_id",
    ),
    (
        "one call a Node",
        *described("return {k: v for n in nodes for k, v in (await there([n])).items()}"),
        "instances::test_nodes_cost_a_call_a_batch",
    ),
    (
        "one failed call is the failure of all",
        *described(
            "from ccm.cloud.lookup import batches",
            "split = batches(nodes, self.batch_size)",
            "return {k: v for b in split for k, v in (await self._describe_batch(b)).items()}",
        ),
        "instances::test_a_failed_call_leaves_only_its_own_nodes_unknown",
    ),
    (
        "one machine that is gone spoils its batch",
        *described(
            "found = await there(nodes)",
            "if any(isinstance(one, Gone) for one in found.values()):",
            "    raise CloudError('not found')",
            "return found",
        ),
        "instances::test_an_absent_machine_does_not_spoil_its_batch",
    ),
)

PROVIDER = (
    (
        "a start writes to the cloud",
        "        self.routes = ",
        '        await self._api.write("C", "POST", "balancers", body={"name": "hello"})\n'
        "        self.routes = ",
        "provider::test_starting_it_writes_nothing_to_the_cloud",
    ),
    (
        "a configuration that is not understood is a stack trace",
        "    sections = Sections(",
        "    content.decode()\n    sections = Sections(",
        "provider::test_a_configuration_it_cannot_use_is_reported_as_faults",
    ),
    (
        "it goes by another name",
        'name, provider_ids = "mutant"',
        'name, provider_ids = "other"',
        "provider::test_it_has_a_name_and_knows_what_is_not_its_own",
    ),
    (
        "a quota allows no call",
        "burst=10",
        "burst=0",
        "provider::test_it_declares_what_the_cloud_allows",
    ),
    (
        "the credentials are read once",
        "credentials_of(section.secret)",
        "credentials_of(SecretText('token', section.secret.read()))",
        "credentials::test_refused_credentials_are_shown_again_when_they_changed",
    ),
    (
        "a proof of the credentials that proves nothing",
        "    async def close(self) -> None:\n",
        "    async def prove_credentials(self):\n        pass\n\n"
        "    async def close(self) -> None:\n",
        "credentials::test_credentials_are_proved_at_little_cost_however_many_machines_there_are",
    ),
    (
        "it can be ended once",
        "await self._api.close()",
        "await self.__dict__.pop('_api').close()",
        "provider::test_it_can_be_closed_twice_and_started_again",
    ),
)
