"""Providers that are wrong about single calls: budgets, errors, pages."""

from .mutant import Mutant

CALLS = (
    Mutant(
        "a denied call is retried for ever",
        "api.py",
        "return Denied(message)",
        "return CloudError(message)",
        "errors::test_a_failure_is_told_as_what_it_is[Ensure-denied]",
    ),
    Mutant(
        "throttling is an error like any other",
        "api.py",
        "return Throttled(message, error.retry_after)",
        "return CloudError(message)",
        "errors::test_a_failure_is_told_as_what_it_is[Describe-throttled]",
    ),
    Mutant(
        "throttling is waited out and done again where nobody sees it",
        "api.py",
        "            return self._account.request(operation, **fields)\n",
        "            try:\n"
        "                return self._account.request(operation, **fields)\n"
        "            except SdkError:\n"
        "                return self._account.request(operation, **fields)\n",
        "errors::test_the_sdk_does_not_repeat_calls_by_itself[Get-throttled]",
    ),
    Mutant(
        "the cloud's word on when to come back is forgotten",
        "api.py",
        "return Throttled(message, error.retry_after)",
        "return Throttled(message)",
        "errors::test_a_failure_is_told_as_what_it_is[ListRoutes-throttled]",
    ),
    Mutant(
        "a server error is final",
        "api.py",
        "400 <= status < 500 and",
        "400 <= status < 600 and",
        "errors::test_a_failure_is_told_as_what_it_is[Delete-error]",
    ),
    Mutant(
        "an exception of the SDK gets out",
        "api.py",
        "except OSError as broken:",
        "except KeyError as broken:",
        "errors::test_a_failure_is_told_as_what_it_is[CreateRoute-silent]",
    ),
    Mutant(
        "a failed read is taken for nothing there",
        "api.py",
        "        except Absent:\n            return None",
        "        except CloudError:\n            return None",
        "resume::test_it_converges_from_wherever_it_was_broken_off[Delete-failed]",
    ),
    Mutant(
        "an answer that is not understood is success",
        "api.py",
        'if "id" not in record:',
        "if record is None:",
        "errors::test_a_failure_is_told_as_what_it_is[DeleteRoute-garbage]",
    ),
    Mutant(
        "the first page is all",
        "api.py",
        'after = page["next"]',
        'after = ""',
        "routes::test_routes_are_listed_from_all_pages",
    ),
    Mutant(
        "the first page is all, of balancers too",
        "api.py",
        'after = page["next"]',
        'after = ""',
        "load_balancers::test_balancers_are_listed_from_all_pages",
    ),
    Mutant(
        "a list that broke off is returned in part",
        "api.py",
        "            page = self.read(operation, after=after, **fields)\n",
        "            try:\n"
        "                page = self.read(operation, after=after, **fields)\n"
        "            except CloudError:\n"
        "                return Found(records, frozenset(absent))\n",
        "routes::test_a_list_that_broke_off_is_raised_and_not_returned_in_part",
    ),
    Mutant(
        "calls go past the gate",
        "api.py",
        "return self._gate.call_blocking(operation, budget, lambda: self._send(operation, fields))",
        "return self._send(operation, fields)",
        "provider::test_every_call_passes_the_gate[Owned]",
    ),
    Mutant(
        "a write looks like a read to a rehearsal",
        "api.py",
        "call_blocking(operation,",
        'call_blocking(operation.replace("Create", "GetOrCreate"),',
        "provider::test_reads_and_writes_are_told_apart_by_their_names[Ensure]",
    ),
    Mutant(
        "a read does not look like one",
        "api.py",
        "call_blocking(operation,",
        'call_blocking(operation.replace("Get", "Fetch"),',
        "provider::test_reads_and_writes_are_told_apart_by_their_names[Get]",
    ),
    Mutant(
        "calls spend a budget that nobody declared",
        "api.py",
        'self._call(operation, "read", fields)',
        'self._call(operation, "reads", fields)',
        "provider::test_every_call_spends_a_declared_budget[DescribeVolumes]",
    ),
)
