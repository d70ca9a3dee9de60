"""All checks run together: none hides another one, whatever becomes of it."""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ccm.checks.api_server import supported_versions
from ccm.checks.cloud import start_provider
from ccm.checks.context import Check, CheckContext, once
from ccm.checks.finding import CheckState, Finding, NotChecked, failed, not_checked, ok, warning
from ccm.checks.run import CHECKS, CheckResult, run_checks, to_json
from ccm.cloud import registry
from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.errors import CloudError, KubernetesError, Unreachable
from ccm.settings import Settings
from tests.docs.pages import table_rows

pytestmark = pytest.mark.virtual_time


def a_context() -> CheckContext:
    return CheckContext(Settings(cloud_provider="simulated"), {})


async def fine(context: CheckContext) -> list[Finding]:
    return [ok("fine")]


async def confused(context: CheckContext) -> Iterator[Finding]:
    return (ok(f"{1 // odd}") for odd in (1, 0))


async def hang(context: CheckContext) -> list[Finding]:
    await asyncio.Event().wait()
    return []


def raising(error: Exception) -> Callable[[CheckContext], Any]:
    async def check(context: CheckContext) -> None:
        raise error

    return check


async def talkative(context: CheckContext) -> list[Finding]:
    return [failed("x" * 1_000_000, "y" * 1_000_000)]


async def test_what_a_kubelet_or_a_tenant_wrote_is_shown_in_part() -> None:
    """Such as a provider ID of a megabyte, which stands before all other findings."""
    (result,) = await run_checks([Check("talkative", talkative)], a_context())
    (finding,) = result.findings
    assert len(finding.message) + len(finding.remedy) < 10_000


@pytest.mark.parametrize(
    ("check", "state", "message"),
    [
        (raising(NotChecked("may not read")), CheckState.NOT_CHECKED, "may not read"),
        (raising(KubernetesError(500, "Broken", "oh", None)), CheckState.FAILED, "500 Broken: oh"),
        (raising(Unreachable("GET /x: reset")), CheckState.FAILED, "GET /x: reset"),
        (raising(CloudError("no answer")), CheckState.FAILED, "no answer"),
        (raising(ZeroDivisionError("bug")), CheckState.FAILED, "the check itself failed"),
        (confused, CheckState.FAILED, "the check itself failed"),
        (hang, CheckState.FAILED, "no result within 50ms"),
    ],
)
async def test_a_check_that_breaks_says_so_and_the_others_go_on(
    check: Callable[[CheckContext], Any], state: CheckState, message: str
) -> None:
    checks = [Check("before", fine), Check("broken", check, timeout=0.05), Check("after", fine)]
    before, broken, after = await run_checks(checks, a_context())
    assert (before.state, after.state) == (CheckState.OK, CheckState.OK)
    assert broken.state is state
    assert message in broken.findings[0].message
    assert state is CheckState.NOT_CHECKED or broken.findings[0].remedy


async def test_what_several_need_is_probed_once_and_no_timeout_takes_it_away() -> None:
    probes, there = [], asyncio.Event()

    @once
    async def slow(context: CheckContext) -> list[Finding]:
        probes.append(context)
        await there.wait()
        return [ok("the answer")]

    async def wait_until_the_other_timed_out(context: CheckContext) -> list[Finding]:
        asyncio.get_running_loop().call_later(0.1, there.set)
        return await slow(context)

    checks = [Check("first", slow, 0.02), Check("second", wait_until_the_other_timed_out)]
    results = await run_checks(checks, a_context())
    assert [result.state for result in results] == [CheckState.FAILED, CheckState.OK]
    assert len(probes) == 1


async def test_what_is_under_way_at_the_end_is_ended() -> None:
    context = a_context()
    await run_checks([Check("hangs", once(hang), timeout=0.01)], context)
    assert [probe.cancelled() for probe in context.probes.values()] == [True]


async def test_a_provider_that_fails_to_close_costs_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = []

    class Cloud(CloudProvider):
        name, provider_ids, quotas = "unclosable", re.compile("unclosable://.*"), {}

        async def initialize(self, context: ProviderContext) -> None: ...

        async def close(self) -> None:
            closed.append(self)
            raise RuntimeError("no")

    async def start(context: CheckContext) -> list[Finding]:
        await start_provider(context)
        return [ok("started")]

    monkeypatch.setitem(registry._in_code, "unclosable", lambda: Cloud())
    context = CheckContext(Settings(cloud_provider="unclosable"), {})
    [result] = await run_checks([Check("a", start)], context)
    assert (result.state, len(closed)) == (CheckState.OK, 1)


async def test_the_worst_finding_comes_first_and_gives_the_state() -> None:
    async def mixed(context: CheckContext) -> list[Finding]:
        return [ok("a"), not_checked("b"), failed("c", "do c"), warning("d", "do d")]

    [result] = await run_checks([Check("mixed", mixed)], a_context())
    assert [finding.message for finding in result.findings] == ["c", "d", "b", "a"]
    assert result.state is CheckState.FAILED


def test_the_json_has_its_documented_shape() -> None:
    findings = (warning("is old", "renew it"), ok("is there"))
    results = [CheckResult("one", 0.12345, findings), CheckResult("two", 0.0, (ok("fine"),))]
    assert to_json(results, "1.2.3", "nimbus") == {
        "version": "1.2.3",
        "provider": "nimbus",
        "state": "warning",
        "counts": {"ok": 1, "not checked": 0, "warning": 1, "failed": 0},
        "checks": [
            {
                "name": "one",
                "state": "warning",
                "seconds": 0.123,
                "findings": [
                    {"state": "warning", "message": "is old", "remedy": "renew it"},
                    {"state": "ok", "message": "is there", "remedy": ""},
                ],
            },
            {
                "name": "two",
                "state": "ok",
                "seconds": 0.0,
                "findings": [{"state": "ok", "message": "fine", "remedy": ""}],
            },
        ],
    }


def test_every_check_has_its_line_in_the_documentation() -> None:
    _, *lines = table_rows("check.md", "checks")
    assert [name for name, _ in lines] == [f"`{check.name}`" for check in CHECKS]
    known = f"({supported_versions()} are supported)"
    assert any(known in about for name, about in lines if name == "`api-resources`")
