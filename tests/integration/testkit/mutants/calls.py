"""Providers that are wrong about single calls: budgets, errors, pages."""

FIRST = "    async def _record(self, request: Request) -> Json:\n"


def reported(kind: str, instead: str) -> tuple[str, str]:
    """An error of one kind is another one."""
    return FIRST, (
        "    def error(self, message, content, response):\n"
        "        from ccm.errors import CloudError, Denied, Refused, Throttled\n"
        "        found = super().error(message, content, response)\n"
        f"        return {instead}(message) if type(found) is {kind} else found\n\n{FIRST}"
    )


def sent(*lines: str) -> tuple[str, str]:
    """What is done instead of sending a request once."""
    return FIRST, "\n".join(
        ["    async def send(self, request):", *(f"        {line}" for line in lines), "", FIRST]
    )


CALLS = (
    (
        "a denied call is retried for ever",
        *reported("Denied", "CloudError"),
        "failures::test_a_failure_is_reported_as_what_it_is[Ensure-denied]",
    ),
    (
        "throttling is an error like any other",
        *reported("Throttled", "CloudError"),
        "failures::test_a_failure_is_reported_as_what_it_is[Describe-throttled]",
    ),
    (
        "throttling is waited out and done again where nobody sees it",
        *sent(
            "response = await super().send(request)",
            "again = response.status == 429",
            "return await super().send(request) if again else response",
        ),
        "failures::test_the_sdk_does_not_repeat_calls_by_itself[Get-throttled]",
    ),
    (
        "the cloud's word on when to come back is forgotten",
        *reported("Throttled", "Throttled"),
        "failures::test_a_failure_is_reported_as_what_it_is[ListRoutes-throttled]",
    ),
    (
        "a server error is final",
        *reported("CloudError", "Refused"),
        "failures::test_a_failure_is_reported_as_what_it_is[Delete-error]",
    ),
    (
        "an exception of the library gets out",
        *sent(
            "from ccm.errors import CloudError",
            "try:",
            "    return await super().send(request)",
            "except CloudError as error:",
            "    raise ConnectionError(str(error)) from error",
        ),
        "failures::test_a_failure_is_reported_as_what_it_is[CreateRoute-silent]",
    ),
    (
        "an answer that points to another host is followed",
        *sent(
            "import asyncio, contextlib, urllib.request",
            "response = await super().send(request)",
            "if where := response.header('Location'):",
            "    with contextlib.suppress(OSError):",
            "        await asyncio.to_thread(urllib.request.urlopen, where)",
            "return response",
        ),
        "failures::test_an_answer_without_measure_is_a_failure_in_time_and_of_one_line"
        "[ListRoutes-elsewhere]",
    ),
    (
        "refused credentials are shown at each call",
        FIRST,
        "    async def exchange(self, request):\n"
        "        from dataclasses import replace\n"
        "        headers = self.authorization(await self._shown._read())\n"
        f"        return await self.attempt(replace(request, headers=headers))\n\n{FIRST}",
        "credentials::test_credentials_that_were_never_taken_are_shown_by_one_call_alone",
    ),
    (
        "a certificate is read once",
        FIRST,
        "    def connections(self, server):\n"
        "        made = super().connections(server)\n"
        f"        return self.__dict__.setdefault('first', made)\n\n{FIRST}",
        "credentials::test_a_renewed_authority_is_trusted_by_the_provider_that_is_there",
    ),
    (
        "a failed read is taken for nothing there",
        "        pages = [page async for page in self.read_pages(request, next_page)]\n",
        "        from ccm.errors import CloudError\n"
        "        try:\n"
        "            pages = [page async for page in self.read_pages(request, next_page)]\n"
        "        except CloudError:\n"
        "            return []\n",
        "failures::test_it_converges_from_wherever_it_was_broken_off[Delete-failed]",
    ),
    (
        "an answer that is not understood is success",
        'if "id" not in record:',
        "if record is None:",
        "failures::test_a_failure_is_reported_as_what_it_is[DeleteRoute-garbage]",
    ),
    (
        "the first page is all",
        'after = mapping(page).get("next")',
        'after = ""',
        "routes::test_routes_are_listed_from_all_pages",
    ),
    (
        "the first page is all, of balancers too",
        'after = mapping(page).get("next")',
        'after = ""',
        "load_balancers::test_balancers_are_listed_from_all_pages",
    ),
    (
        "the first page is all, of machines too: its next one is a number",
        'after = mapping(page).get("next")',
        'after = mapping(page).get("next") if isinstance(mapping(page).get("next"), str) else ""',
        "instances::test_machines_on_every_page_of_a_list_are_found[id]",
    ),
    (
        "a list that broke off is returned in part",
        "        pages = [page async for page in self.read_pages(request, next_page)]\n",
        "        from contextlib import suppress\n"
        "        from ccm.errors import CloudError\n"
        "        pages = []\n"
        "        with suppress(CloudError):\n"
        "            async for page in self.read_pages(request, next_page):\n"
        "                pages.append(page)\n",
        "routes::test_a_list_that_broke_off_is_raised_and_not_returned_in_part",
    ),
    (
        "calls go past the gate",
        FIRST,
        "    async def attempt(self, request):\n"
        "        response = await self.send(request)\n"
        f"        return self.read(request.operation, response), response\n\n{FIRST}",
        "provider::test_every_call_passes_the_gate[Owned]",
    ),
    (
        "a write looks like a read to a dry run",
        'Request(operation, "write", method, path_of("v1", *path), body)',
        'Request(operation, "write", method, path_of("v1", *path), body, changes_nothing=True)',
        "provider::test_a_call_that_may_change_the_cloud_is_said_to_be_a_write[Ensure]",
    ),
    (
        "a read does not look like one",
        'request = Request(operation, "read", "GET", path_of("v1", kind))',
        'kind_of = type("Odd", (Request,), {"is_write": True})\n'
        '        request = kind_of(operation, "read", "GET", path_of("v1", kind))',
        "provider::test_a_call_that_may_change_the_cloud_is_said_to_be_a_write[Get]",
    ),
    (
        "calls spend a budget that nobody declared",
        'request = Request(operation, "read", "GET"',
        'request = Request(operation, "reads", "GET"',
        "provider::test_every_call_spends_a_declared_budget[DescribeVolumes]",
    ),
)
