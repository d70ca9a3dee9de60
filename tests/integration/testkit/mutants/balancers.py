"""Providers that are wrong about load balancers."""

LAST = '        return {"cluster": self._cluster, "service": service.uid}\n'
CREATE = (
    "    async def create(self, request, desired):\n        body = request.mark | desired.content\n"
)
POST = 'await self._api.write("CreateBalancer", "POST", "balancers", body=body)\n'
PART = "body | {'name': body['name'] + '-part', 'tags': {}}"
POST_PART = f'        await self._api.write("CreateBalancer", "POST", "balancers", body={PART})\n'
REMOVE = """\
    async def remove(self, record):
        parts = [one for one in await self.read_all() if not one['tags']]
        for one in ({}):
            await self._api.write("Delete", "DELETE", "balancers", one["id"])
"""
OWN = 'if record["tags"] == self._tags(service)]'


def overridden(*methods: str) -> tuple[str, str]:
    """Methods at the end of the class, which count before those above."""
    return LAST, LAST + "".join(f"\n{method}" for method in methods)


BALANCERS = (
    (
        "every ensure writes",
        *overridden("    def differences(self, desired, record):\n        return desired\n"),
        "load_balancers::test_a_balancer_that_is_right_is_not_written",
    ),
    (
        "another order of ports is another balancer",
        *overridden(
            "    def differences(self, desired, record):\n"
            "        return {key: one for key, one in desired.items() if record.get(key) != one}\n"
        ),
        "load_balancers::test_a_balancer_that_is_right_is_not_written",
    ),
    (
        "what was made is remembered and not looked at",
        *overridden(
            "    async def ensure(self, service, nodes):\n"
            "        made = self.__dict__.setdefault('made', set())\n"
            "        for record in self.own(service, await self.read_all()):\n"
            "            if service.uid not in made:\n"
            "                await self.update(record, {})\n"
            "        made.add(service.uid)\n"
            "        return await super().ensure(service, nodes)\n"
        ),
        "load_balancers::test_neither_a_restart_nor_a_fail_over_writes",
    ),
    (
        "it is written before it is read",
        *overridden(
            "    async def ensure(self, service, nodes):\n"
            "        from contextlib import suppress\n"
            "        with suppress(Refused):\n"
            "            await self._api.write('UpdateBalancer', 'PATCH', 'balancers', 'none')\n"
            "        return await super().ensure(service, nodes)\n"
        ),
        "load_balancers::test_a_balancer_is_read_before_it_is_written",
    ),
    (
        "ports are as they were made",
        "ref, body=changes)",
        "ref, body={k: v for k, v in changes.items() if k != 'listeners'})",
        "service_changes::test_a_change_reaches_the_cloud_and_back[another node port]",
    ),
    (
        "source ranges are ignored",
        '"source_ranges": [] if admits_everybody(ranges) else sorted(map(str, ranges))',
        '"source_ranges": []',
        "service_changes::test_a_feature_is_had_from_the_start[source ranges]",
    ),
    (
        "source ranges of the annotation are ignored",
        "service.source_ranges(), service.health_check",
        "Service({'spec': service.spec}).source_ranges(), service.health_check",
        "service_changes::test_source_ranges_of_the_annotation_count_as_well",
    ),
    (
        "the health check is ignored",
        "[health.port, health.path] if health else []",
        "[]",
        "service_changes::test_a_change_reaches_the_cloud_and_back[a health check]",
    ),
    (
        "a feature is promised and not done",
        'service.spec.get("sessionAffinity") == "ClientIP"',
        "False",
        "service_changes::test_a_feature_is_had_from_the_start[session affinity]",
    ),
    (
        "annotations are ignored",
        'service.annotations.get(IDLE_TIMEOUT, "60")',
        '"60"',
        "service_changes::test_annotations_reach_the_cloud_or_are_refused",
    ),
    (
        "backends are as they were made",
        "request.settings | (await self.desired_backends({}, nodes)).content",
        "request.settings | ({} if own else (await self.desired_backends({}, nodes)).content)",
        "service_changes::test_other_backends_reach_the_cloud",
    ),
    (
        "backends are added and never taken away",
        'ids = {machine_id(node.provider_id) for node in nodes} - {""}',
        'ids = {machine_id(node.provider_id) for node in nodes} | set(record.get("machines", ()))',
        "load_balancers::test_hosts_are_replaced_and_nothing_else",
    ),
    (
        "a machine that ended keeps the others out",
        *overridden(
            "    async def ensure(self, service, nodes):\n"
            "        return await self._ensure_all(service, nodes)\n"
            "    async def update_nodes(self, service, nodes):\n"
            "        await self._update_all(service, nodes)\n"
        ),
        "load_balancers::test_a_machine_that_ended_does_not_keep_the_others_out",
    ),
    (
        "backends of no balancer are success",
        *overridden(
            "    async def update_nodes(self, service, nodes):\n"
            "        if self.own(service, await self.read_all()):\n"
            "            await super().update_nodes(service, nodes)\n"
        ),
        "load_balancers::test_hosts_of_no_balancer_are_refused",
    ),
    (
        "the name is of this process only",
        *overridden(
            "    def name_for(self, service):\n"
            "        return f'a{id(self)}{super().name_for(service)}'[:32]\n"
        ),
        "load_balancers::test_a_name_is_of_one_service_for_ever",
    ),
    (
        "the name says nothing of the Service",
        *overridden("    def name_for(self, service):\n        return service.namespace\n"),
        "load_balancers::test_a_name_is_of_one_service_for_ever",
    ),
    (
        "a foreign balancer of our name is deleted",
        OWN,
        'if record["name"] == self.name_for(service)]',
        "load_balancers::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    (
        "the mark of any cluster will do",
        OWN,
        'if record["tags"].get("service") == service.uid]',
        "load_balancers::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    (
        "the mark of any Service will do",
        OWN,
        'if record["tags"].get("cluster") == self._cluster]',
        "load_balancers::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    (
        "balancers of others are listed as ours",
        'is_ours = record["tags"].get("cluster") == self._cluster',
        'is_ours = "service" in record["tags"]',
        "load_balancers::test_a_balancer_of_another_is_not_listed_as_ours",
    ),
    (
        "a part of the balancer stays behind",
        *overridden(f"{CREATE}        made = {POST}{POST_PART}        return made\n"),
        "load_balancers::test_a_deleted_balancer_leaves_nothing_behind",
    ),
    (
        "a part is forgotten when the deletion was broken off",
        *overridden(
            f"{CREATE}{POST_PART}        return {POST}",
            REMOVE.format("record, *parts"),
        ),
        "failures::test_it_converges_from_wherever_it_was_broken_off[Delete-killed after]",
    ),
    (
        "what an ensure left half done is in its way",
        *overridden(
            f"{CREATE}{POST_PART}        return {POST}",
            REMOVE.format("*parts, record"),
        ),
        "failures::test_it_converges_from_wherever_it_was_broken_off[Ensure-killed after]",
    ),
    (
        "a second try makes a second part",
        *overridden(
            f"{CREATE}        import uuid\n{POST_PART.replace(repr('-part'), 'uuid.uuid4().hex')}"
            f"        return {POST}"
        ),
        "failures::test_it_converges_from_wherever_it_was_broken_off[Ensure-answer lost]",
    ),
    (
        "a write that failed is success",
        *overridden(
            "    async def update(self, record, changes):\n"
            "        from ccm.errors import CloudError\n"
            "        try:\n"
            "            path = 'balancers', record['id']\n"
            "            return await self._api.write('U', 'PATCH', *path, body=changes)\n"
            "        except CloudError:\n"
            "            return record\n"
        ),
        "failures::test_it_converges_from_wherever_it_was_broken_off[UpdateNodes-failed]",
    ),
    (
        "Services that are served at once are mixed up",
        '        mark = {"name"',
        "        import asyncio\n"
        "        self.service = service\n"
        "        await asyncio.sleep(0.001)\n"
        "        service = self.service\n"
        '        mark = {"name"',
        "load_balancers::test_services_are_served_in_parallel",
    ),
    (
        "what one answer lacks is made again beside it",
        *overridden(
            f"{CREATE}        body['name'] += '-2' * len(await self.read_all())\n"
            f"        return {POST}"
        ),
        "untrusted::test_an_answer_without_what_is_there_moves_no_published_balancer",
    ),
    (
        "after two lists without any there are no load balancers",
        'return await self._api.list("ListBalancers", "balancers")',
        'found = await self._api.list("ListBalancers", "balancers")\n'
        "        before = getattr(self, 'without_any', 0)\n"
        "        self.without_any = before + 1 if before > 1 or not found else 0\n"
        "        return [] if self.without_any > 1 else found",
        "untrusted::test_an_answer_without_what_is_there_leaves_nothing_of_a_deletion",
    ),
    (
        "a list alone says whose a record is",
        '["tags"] != record["tags"]',
        '["tags"] == "another"',
        "mixed_up::test_an_answer_that_mixes_up_records_costs_no_other_its_balancer",
    ),
    (
        "what there is is not shown while what is asked for is refused",
        *overridden(
            "    async def get(self, service):\n"
            "        own = self.own(service, await self.read(service))\n"
            "        return self.balancer(await self.request(service, own), own) if own else None\n"
        ),
        "load_balancers::test_what_a_service_has_is_shown_whatever_it_asks_for",
    ),
    (
        "whatever a write is answered with is the Service's own",
        *overridden("    def _verify_own(self, service, record):\n        return None\n"),
        "untrusted::test_anothers_record_answers_a_write_and_is_not_taken_for_ones_own",
    ),
)
