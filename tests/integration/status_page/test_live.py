"""A whole supervisor, looked at through a browser that runs no scripts."""

import asyncio
from itertools import count
from pathlib import Path

from tests.support.cluster_nodes import kill
from tests.support.deadlines import within

from .browser import opened
from .scene import GONE, MADE, NODES, REFUSED, STUCK, Scene, played
from .statuses import PageReader
from .test_render import CODE


async def test_a_person_sees_what_is_wrong_and_why_and_what_becomes_of_it(
    chromium: str, tmp_path: Path
) -> None:
    async with played(tmp_path, CODE) as scene, opened(chromium, tmp_path) as tab:
        await tab.show(f"{scene.url}?refresh=2")
        page = PageReader(await tab.source())
        _tells_of_workers_and_watches(page)
        _tells_why_nodes_are_not_ready(page)
        _tells_of_balancers(page)
        _tells_what_is_not_deleted(page)
        assert tab.complaints() == []
        async with within(60):
            kills = await _kill_a_worker(scene)
            while _restarts(page) != str(kills):
                await tab.happens("Page.loadEventFired")  # nobody but the page asked for it
                page = PageReader(await tab.source())


def _tells_of_workers_and_watches(page: PageReader) -> None:
    states = {row[0]: row[1] for row in page.rows["Workers"][1:]}
    names = ("node-0", "route", "service", "volume-label")
    assert states == dict.fromkeys(names, "running")
    watched = {row[0]: row[1] for row in page.rows["Watches"][1:]}
    assert watched["Node"] == str(NODES + 1)
    budgets = {row[0]: row[1] for row in page.rows["Cloud budget"][1:]}
    assert budgets == {"read": "closed", "write": "closed"}


def _tells_why_nodes_are_not_ready(page: PageReader) -> None:
    tainted, unready = page.texts["Pending nodes"]
    assert tainted.endswith("): 1 node.")
    assert unready.startswith("Not ready")
    reported = {row[2].partition("-")[0]: (row[0], row[3]) for row in page.rows["Pending nodes"]}
    assert reported["node"] == (
        STUCK,
        f"the cloud knows no such machine: the cloud has no machine {STUCK}",
    )
    assert reported["route"] == (STUCK, "waits for its provider ID")
    decided = {(row[0], row[3]) for row in page.rows["Recent decisions"]}
    assert {(STUCK, "failed"), (f"default/{REFUSED}", "failed")} <= decided


def _tells_of_balancers(page: PageReader) -> None:
    reported = {row[0]: row for row in page.rows["Load balancers"]}
    assert "set spec.sessionAffinity to None" in reported[f"default/{REFUSED}"][-1]
    for name in MADE:
        row = reported[f"default/{name}"]
        assert (row[1], row[3][:7]) == ("ensured", "100.64.")


def _tells_what_is_not_deleted(page: PageReader) -> None:
    _, *candidates = page.rows["Deletions of nodes"]
    assert [row[:2] for row in candidates] == [[GONE, "held"]]
    assert any("frozen by alice since 20" in said for said in page.texts["Deletions of nodes"])
    assert any(CODE.strip() in said for said in page.texts["Problems"])


async def _kill_a_worker(scene: Scene) -> int:
    """Until the page said so while it was not back yet; how often that took."""
    for kills in count(1):
        old = scene.supervisor.pids()["volume-label"]
        kill(old)
        while not await asyncio.to_thread(scene.supervisor.is_replaced, "volume-label", old):
            if "volume-label: worker is " in (await scene.place.get("/")).text:
                return kills
    raise AssertionError("it never ends otherwise")


def _restarts(page: PageReader) -> str:
    return next(row[4] for row in page.rows["Workers"] if row[0] == "volume-label")
