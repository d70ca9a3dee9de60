"""All checks run together: none hides another one, whatever becomes of it."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ccm.checks.all import CHECKS
from ccm.checks.check import Check
from ccm.checks.cluster import api_kinds
from ccm.checks.finding import Finding, NotChecked, State, failed, not_checked, ok, warning
from ccm.checks.report import report
from ccm.checks.run import Result, run
from ccm.checks.site import Site, once
from ccm.errors import CloudError, KubernetesError, Unreachable
from ccm.settings import Settings
from tests.unit.test_docs import rows


def a_site() -> Site:
    return Site(Settings(cloud_provider="simulated"), {})


def judge(facts: object) -> Iterator[Finding]:
    yield ok("fine")


async def see(site: Site) -> None:
    return


async def hang(site: Site) -> None:
    await asyncio.Event().wait()


def raising(error: Exception) -> Callable[[Site], Any]:
    async def look(site: Site) -> None:
        raise error

    return look


@pytest.mark.parametrize(
    ("look", "state", "seen"),
    [
        (raising(NotChecked("may not look")), State.NOT_CHECKED, "may not look"),
        (raising(KubernetesError(500, "Broken", "oh", None)), State.FAILED, "500 Broken: oh"),
        (raising(Unreachable("GET /x: reset")), State.FAILED, "GET /x: reset"),
        (raising(CloudError("no answer")), State.FAILED, "no answer"),
        (raising(ZeroDivisionError("bug")), State.FAILED, "the check itself failed"),
        (hang, State.FAILED, "no result within 50ms"),
    ],
)
async def test_a_check_that_breaks_says_so_and_the_others_go_on(
    look: Callable[[Site], Any], state: State, seen: str
) -> None:
    checks = [
        Check("before", see, judge),
        Check("broken", look, judge, timeout=0.05),
        Check("after", see, judge),
    ]
    before, broken, after = await run(checks, a_site())
    assert (before.state, after.state) == (State.OK, State.OK)
    assert broken.state is state
    assert seen in broken.findings[0].seen
    assert state is State.NOT_CHECKED or broken.findings[0].remedy


async def test_a_judgement_that_breaks_hides_no_other_check() -> None:
    def confused(facts: object) -> Iterator[Finding]:
        yield ok("so far")
        raise ValueError("odd facts")

    broken, fine = await run([Check("a", see, confused), Check("b", see, judge)], a_site())
    assert (broken.state, fine.state) == (State.FAILED, State.OK)


async def test_what_several_need_is_looked_at_once_and_no_impatience_takes_it_away() -> None:
    looks, there = [], asyncio.Event()

    async def slow(site: Site) -> str:
        looks.append(site)
        await there.wait()
        return "the answer"

    shared = once(slow)

    async def use(site: Site) -> str:
        return await shared(site)

    async def wait_until_the_other_gave_up(site: Site) -> str:
        asyncio.get_running_loop().call_later(0.1, there.set)
        return await shared(site)

    results = await run(
        [
            Check("impatient", use, judge, timeout=0.02),
            Check("patient", wait_until_the_other_gave_up, judge),
        ],
        a_site(),
    )
    assert [result.state for result in results] == [State.FAILED, State.OK]
    assert len(looks) == 1


async def test_what_is_under_way_at_the_end_is_ended() -> None:
    shared, site = once(hang), a_site()

    async def use(site: Site) -> None:
        await shared(site)

    await run([Check("hangs", use, judge, timeout=0.01)], site)
    assert all(look.cancelled() for look in site.looks.values())


async def test_a_provider_that_fails_to_close_costs_no_result() -> None:
    site = a_site()

    class Cloud:
        async def close(self) -> None:
            raise RuntimeError("no")

    async def started() -> object:
        return SimpleNamespace(provider=Cloud())

    site.looks["started"] = asyncio.create_task(started())
    await site.looks["started"]
    assert [result.state for result in await run([Check("a", see, judge)], site)] == [State.OK]


async def test_the_worst_finding_comes_first_and_gives_the_state() -> None:
    def mixed(facts: object) -> Iterator[Finding]:
        yield from (ok("a"), not_checked("b"), failed("c", "do c"), warning("d", "do d"))

    [result] = await run([Check("mixed", see, mixed)], a_site())
    assert [finding.seen for finding in result.findings] == ["c", "d", "b", "a"]
    assert result.state is State.FAILED


def test_the_json_has_its_documented_shape() -> None:
    findings = (warning("is old", "renew it"), ok("is there"))
    results = [Result("one", 0.12345, findings), Result("two", 0.0, (ok("fine"),))]
    assert report(results, "1.2.3", "nimbus") == {
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
                    {"state": "warning", "seen": "is old", "remedy": "renew it"},
                    {"state": "ok", "seen": "is there", "remedy": ""},
                ],
            },
            {
                "name": "two",
                "state": "ok",
                "seconds": 0.0,
                "findings": [{"state": "ok", "seen": "fine", "remedy": ""}],
            },
        ],
    }


def test_every_check_has_its_line_in_the_documentation() -> None:
    _, *lines = rows("check.md", "checks")
    assert [name for name, _ in lines] == [f"`{check.name}`" for check in CHECKS]
    known = f"({api_kinds.known()} are known)"
    assert any(known in about for name, about in lines if name == "`api-kinds`")
