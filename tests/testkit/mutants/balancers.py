"""Providers that are wrong about balancers."""

from .mutant import Mutant

BALANCERS = (
    Mutant(
        "every ensure writes",
        "load_balancers.py",
        "if not changes:",
        "if not record:",
        "idempotence::test_a_balancer_that_is_right_is_not_written",
    ),
    Mutant(
        "another order of ports is another balancer",
        "load_balancers.py",
        '"listeners": sorted([',
        '"listeners": list([',
        "idempotence::test_a_balancer_that_is_right_is_not_written",
    ),
    Mutant(
        "what was made is remembered and not looked at",
        "load_balancers.py",
        "        wanted = wanted_of(service)\n",
        "        self.__dict__.setdefault('made', set())\n"
        "        if service.uid not in self.made:\n"
        "            self.made.add(service.uid)\n"
        "            self._put_pool(service, None, [])\n"
        "        wanted = wanted_of(service)\n",
        "idempotence::test_neither_a_restart_nor_a_fail_over_writes",
    ),
    Mutant(
        "it is written before it is read",
        "load_balancers.py",
        "        pool, balancer = self._read(service)\n        if balancer:",
        "        self._api.write('UpdateBalancers', ref=self.name_for(service))\n"
        "        pool, balancer = self._read(service)\n        if balancer:",
        "idempotence::test_a_balancer_is_read_before_it_is_written",
    ),
    Mutant(
        "ports are as they were made",
        "load_balancers.py",
        "if record[key] != value}",
        "if record[key] != value and key != 'listeners'}",
        "changes::test_a_change_reaches_the_cloud_and_back[another node port]",
    ),
    Mutant(
        "source ranges are ignored",
        "load_balancers.py",
        '"source_ranges": [] if admits_everybody(ranges) else sorted(map(str, ranges))',
        '"source_ranges": []',
        "changes::test_a_feature_is_had_from_the_start[source ranges]",
    ),
    Mutant(
        "source ranges of the annotation are ignored",
        "load_balancers.py",
        "service.source_ranges(), service.health_check",
        "Service({'spec': service.spec}).source_ranges(), service.health_check",
        "changes::test_source_ranges_of_the_annotation_count_as_well",
    ),
    Mutant(
        "the health check is ignored",
        "load_balancers.py",
        "[health.port, health.path] if health else []",
        "[]",
        "changes::test_a_change_reaches_the_cloud_and_back[a health check]",
    ),
    Mutant(
        "a feature is promised and not done",
        "load_balancers.py",
        'service.spec.get("sessionAffinity") == "ClientIP"',
        "False",
        "changes::test_a_feature_is_had_from_the_start[session affinity]",
    ),
    Mutant(
        "annotations are ignored",
        "load_balancers.py",
        'idle_timeout(service.annotations.get(IDLE_TIMEOUT, "60"))',
        'idle_timeout("60")',
        "changes::test_annotations_reach_the_cloud_or_are_refused",
    ),
    Mutant(
        "hosts are as they were made",
        "load_balancers.py",
        '        self._put("Pools", service, pool, {"hosts": self._living(hosts)})',
        "        if not pool:\n"
        '            self._put("Pools", service, pool, {"hosts": self._living(hosts)})',
        "changes::test_other_hosts_reach_the_cloud",
    ),
    Mutant(
        "hosts are added and never taken away",
        "load_balancers.py",
        '{"hosts": self._living(hosts)})',
        '{"hosts": sorted({*self._living(hosts), *(pool or {"hosts": []})["hosts"]})})',
        "load_balancers::test_hosts_are_replaced_and_nothing_else",
    ),
    Mutant(
        "a machine that ended keeps the others out",
        "load_balancers.py",
        "return sorted(living)",
        "return ids",
        "load_balancers::test_a_machine_that_ended_does_not_keep_the_others_out",
    ),
    Mutant(
        "hosts of no balancer are success",
        "load_balancers.py",
        "        if balancer is None:\n            raise Refused(",
        "        if balancer is None:\n            return\n            raise Refused(",
        "load_balancers::test_hosts_of_no_balancer_are_refused",
    ),
    Mutant(
        "the name is of this process only",
        "load_balancers.py",
        "return f\"a{service.uid.replace('-', '')}\"[:32]",
        "return f\"a{id(self)}{service.uid.replace('-', '')}\"[:32]",
        "load_balancers::test_a_name_is_of_one_service_for_ever",
    ),
    Mutant(
        "the name says nothing of the Service",
        "load_balancers.py",
        "return f\"a{service.uid.replace('-', '')}\"[:32]",
        "return f'{service.namespace}-balancer'",
        "load_balancers::test_a_name_is_of_one_service_for_ever",
    ),
    Mutant(
        "a foreign balancer of our name is deleted",
        "load_balancers.py",
        "if record and not self._is_ours(record, service):",
        "if record and not service.uid:",
        "ownership::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    Mutant(
        "the mark of any cluster will do",
        "load_balancers.py",
        'return bool(record["tags"] == self._mark(service))',
        'return bool(record["tags"].get("service") == service.uid)',
        "ownership::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    Mutant(
        "the mark of any Service will do",
        "load_balancers.py",
        'return bool(record["tags"] == self._mark(service))',
        'return bool(record["tags"].get("cluster") == self._cluster)',
        "ownership::test_a_balancer_of_our_name_without_our_mark_is_not_touched",
    ),
    Mutant(
        "balancers of others are listed as ours",
        "load_balancers.py",
        'if tags.get("cluster") == self._cluster',
        'if "none" not in tags',
        "ownership::test_a_balancer_of_another_is_not_listed_as_ours",
    ),
    Mutant(
        "a part of the balancer stays behind",
        "load_balancers.py",
        "        if pool:\n",
        "        if pool and not balancer:\n",
        "load_balancers::test_a_deleted_balancer_leaves_nothing_behind",
    ),
    Mutant(
        "a part is forgotten when the deletion was broken off",
        "load_balancers.py",
        "        if pool:\n",
        "        if pool and balancer:\n",
        "resume::test_it_converges_from_wherever_it_was_broken_off[Delete-killed after]",
    ),
    Mutant(
        "what an ensure left half done is in its way",
        "load_balancers.py",
        "        self._put_pool(service, pool, hosts)\n        return _balancer",
        "        pool = pool if balancer else None\n"
        "        self._put_pool(service, pool, hosts)\n        return _balancer",
        "resume::test_it_converges_from_wherever_it_was_broken_off[Ensure-killed after]",
    ),
    Mutant(
        "a second try makes a second pool",
        "load_balancers.py",
        "        self._put_pool(service, pool, hosts)\n        return _balancer",
        "        if not balancer:\n"
        "            import uuid\n"
        "            self._api.write('CreatePools', id=uuid.uuid4().hex, tags={}, hosts=[])\n"
        "        self._put_pool(service, pool, hosts)\n        return _balancer",
        "resume::test_it_converges_from_wherever_it_was_broken_off[Ensure-answer lost]",
    ),
    Mutant(
        "a write that failed is success",
        "load_balancers.py",
        "        self._put_pool(service, pool, hosts)\n\n    def delete",
        "        from contextlib import suppress\n"
        "        from ccm.errors import CloudError\n"
        "        with suppress(CloudError):\n"
        "            self._put_pool(service, pool, hosts)\n\n    def delete",
        "resume::test_it_converges_from_wherever_it_was_broken_off[UpdateHosts-failed]",
    ),
    Mutant(
        "Services that are served at once are mixed up",
        "load_balancers.py",
        "        pool, balancer = self._read(service)\n"
        "        self._put_pool(service, pool, hosts)\n        return",
        "        self.service = service\n"
        "        pool, balancer = self._read(service)\n"
        "        service = self.service\n"
        "        self._put_pool(service, pool, hosts)\n        return",
        "concurrency::test_services_are_served_in_parallel",
    ),
)
