"""Providers that are wrong about single calls: budgets, errors, pages."""

CALLS = (
    (
        "a denied call is retried for ever",
        "return Denied(message)",
        "return CloudError(message)",
        "failures::test_a_failure_is_told_as_what_it_is[Ensure-denied]",
    ),
    (
        "throttling is an error like any other",
        "return Throttled(message, error.retry_after)",
        "return CloudError(message)",
        "failures::test_a_failure_is_told_as_what_it_is[Describe-throttled]",
    ),
    (
        "throttling is waited out and done again where nobody sees it",
        "            return self._account.request(operation, **fields)\n",
        "            try:\n"
        "                return self._account.request(operation, **fields)\n"
        "            except SdkError:\n"
        "                return self._account.request(operation, **fields)\n",
        "failures::test_the_sdk_does_not_repeat_calls_by_itself[Get-throttled]",
    ),
    (
        "the cloud's word on when to come back is forgotten",
        "return Throttled(message, error.retry_after)",
        "return Throttled(message)",
        "failures::test_a_failure_is_told_as_what_it_is[ListRoutes-throttled]",
    ),
    (
        "a server error is final",
        "400 <= status < 500 and",
        "400 <= status < 600 and",
        "failures::test_a_failure_is_told_as_what_it_is[Delete-error]",
    ),
    (
        "an exception of the SDK gets out",
        "except OSError as broken:",
        "except KeyError as broken:",
        "failures::test_a_failure_is_told_as_what_it_is[CreateRoute-silent]",
    ),
    (
        "a failed read is taken for nothing there",
        "        except NotFound:\n            return None",
        "        except CloudError:\n            return None",
        "failures::test_it_converges_from_wherever_it_was_broken_off[Delete-failed]",
    ),
    (
        "an answer that is not understood is success",
        'if "id" not in record:',
        "if record is None:",
        "failures::test_a_failure_is_told_as_what_it_is[DeleteRoute-garbage]",
    ),
    (
        "the first page is all",
        'after = page["next"]',
        'after = ""',
        "routes::test_routes_are_listed_from_all_pages",
    ),
    (
        "the first page is all, of balancers too",
        'after = page["next"]',
        'after = ""',
        "load_balancers::test_balancers_are_listed_from_all_pages",
    ),
    (
        "a list that broke off is returned in part",
        "            page = self.read(operation, after=after, **fields)\n",
        "            try:\n"
        "                page = self.read(operation, after=after, **fields)\n"
        "            except CloudError:\n"
        "                return LookupResult(records, frozenset(not_found))\n",
        "routes::test_a_list_that_broke_off_is_raised_and_not_returned_in_part",
    ),
    (
        "calls go past the gate",
        "return self._gate.call_blocking(\n"
        "            operation, budget, lambda: self._send(operation, fields), is_write=is_write\n"
        "        )",
        "return self._send(operation, fields)",
        "provider::test_every_call_passes_the_gate[Owned]",
    ),
    (
        "a write looks like a read to a dry run",
        "is_write=is_write",
        "is_write=False",
        "provider::test_a_call_that_may_change_the_cloud_is_said_to_be_a_write[Ensure]",
    ),
    (
        "a read does not look like one",
        "is_write=is_write",
        "is_write=True",
        "provider::test_a_call_that_may_change_the_cloud_is_said_to_be_a_write[Get]",
    ),
    (
        "calls spend a budget that nobody declared",
        'self._call(operation, "read", fields,',
        'self._call(operation, "reads", fields,',
        "provider::test_every_call_spends_a_declared_budget[DescribeVolumes]",
    ),
)
