"""Providers that are wrong about balancers."""

BALANCERS = (
    (
        "every ensure writes",
        "if not changes:",
        "if not record:",
        "load_balancers::test_a_balancer_that_is_right_is_not_written",
    ),
    (
        "another order of ports is another balancer",
        '"listeners": sorted([',
        '"listeners": list([',
        "load_balancers::test_a_balancer_that_is_right_is_not_written",
    ),
    (
        "what was made is remembered and not looked at",
        "        desired = desired_record(service)\n",
        "        self.__dict__.setdefault('made', set())\n"
        "        if service.uid not in self.made:\n"
        "            self.made.add(service.uid)\n"
        "            self._put_pool(service, None, [])\n"
        "        desired = desired_record(service)\n",
        "load_balancers::test_neither_a_restart_nor_a_fail_over_writes",
    ),
    (
        "it is written before it is read",
        "        pool, balancer = self._read(service)\n        if balancer:",
        "        self._api.write('UpdateBalancers', ref=self.name_for(service))\n"
        "        pool, balancer = self._read(service)\n        if balancer:",
        "load_balancers::test_a_balancer_is_read_before_it_is_written",
    ),
    (
        "ports are as they were made",
        "if record[key] != value}",
        "if record[key] != value and key != 'listeners'}",
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
        'idle_timeout(service.annotations.get(IDLE_TIMEOUT, "60"))',
        'idle_timeout("60")',
        "service_changes::test_annotations_reach_the_cloud_or_are_refused",
    ),
    (
        "backends are as they were made",
        '        self._put("Pools", service, pool, {"backends": self._living(nodes)})',
        "        if not pool:\n"
        '            self._put("Pools", service, pool, {"backends": self._living(nodes)})',
        "service_changes::test_other_backends_reach_the_cloud",
    ),
    (
        "backends are added and never taken away",
        '{"backends": self._living(nodes)})',
        '{"backends": sorted({*self._living(nodes), *(pool or {"backends": []})["backends"]})})',
        "load_balancers::test_hosts_are_replaced_and_nothing_else",
    ),
    (
        "a machine that ended keeps the others out",
        "return sorted(living)",
        "return ids",
        "load_balancers::test_a_machine_that_ended_does_not_keep_the_others_out",
    ),
    (
        "backends of no balancer are success",
        "        if balancer is None:\n            raise Refused(",
        "        if balancer is None:\n            return\n            raise Refused(",
        "load_balancers::test_hosts_of_no_balancer_are_refused",
    ),
    (
        "the name is of this process only",
        "return f\"a{service.uid.replace('-', '')}\"[:32]",
        "return f\"a{id(self)}{service.uid.replace('-', '')}\"[:32]",
        "load_balancers::test_a_name_is_of_one_service_for_ever",
    ),
    (
        "the name says nothing of the Service",
        "return f\"a{service.uid.replace('-', '')}\"[:32]",
        "return f'{service.namespace}-balancer'",
        "load_balancers::test_a_name_is_of_one_service_for_ever",
    ),
    (
        "a foreign balancer of our name is deleted",
        "if record and not self._is_ours(record, service):",
        "if record and not service.uid:",
        "load_balancers::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    (
        "the mark of any cluster will do",
        'return bool(record["tags"] == self._mark(service))',
        'return bool(record["tags"].get("service") == service.uid)',
        "load_balancers::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    (
        "the mark of any Service will do",
        'return bool(record["tags"] == self._mark(service))',
        'return bool(record["tags"].get("cluster") == self._cluster)',
        "load_balancers::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    (
        "balancers of others are listed as ours",
        'if tags.get("cluster") == self._cluster',
        'if "none" not in tags',
        "load_balancers::test_a_balancer_of_another_is_not_listed_as_ours",
    ),
    (
        "a part of the balancer stays behind",
        "        if pool:\n",
        "        if pool and not balancer:\n",
        "load_balancers::test_a_deleted_balancer_leaves_nothing_behind",
    ),
    (
        "a part is forgotten when the deletion was broken off",
        "        if pool:\n",
        "        if pool and balancer:\n",
        "failures::test_it_converges_from_wherever_it_was_broken_off[Delete-killed after]",
    ),
    (
        "what an ensure left half done is in its way",
        "        self._put_pool(service, pool, nodes)\n        return _balancer",
        "        pool = pool if balancer else None\n"
        "        self._put_pool(service, pool, nodes)\n        return _balancer",
        "failures::test_it_converges_from_wherever_it_was_broken_off[Ensure-killed after]",
    ),
    (
        "a second try makes a second pool",
        "        self._put_pool(service, pool, nodes)\n        return _balancer",
        "        if not balancer:\n"
        "            import uuid\n"
        "            self._api.write('CreatePools', id=uuid.uuid4().hex, tags={}, backends=[])\n"
        "        self._put_pool(service, pool, nodes)\n        return _balancer",
        "failures::test_it_converges_from_wherever_it_was_broken_off[Ensure-answer lost]",
    ),
    (
        "a write that failed is success",
        "        self._put_pool(service, pool, nodes)\n\n    def delete",
        "        from contextlib import suppress\n"
        "        from ccm.errors import CloudError\n"
        "        with suppress(CloudError):\n"
        "            self._put_pool(service, pool, nodes)\n\n    def delete",
        "failures::test_it_converges_from_wherever_it_was_broken_off[UpdateNodes-failed]",
    ),
    (
        "Services that are served at once are mixed up",
        "        pool, balancer = self._read(service)\n"
        "        self._put_pool(service, pool, nodes)\n        return",
        "        self.service = service\n"
        "        pool, balancer = self._read(service)\n"
        "        service = self.service\n"
        "        self._put_pool(service, pool, nodes)\n        return",
        "load_balancers::test_services_are_served_in_parallel",
    ),
)
