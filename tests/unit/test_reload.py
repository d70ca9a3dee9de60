"""A reload that replaced no worker, and what comes after it."""

import asyncio

import pytest

from ccm.settings import Settings
from ccm.supervisor.child import NotReplaced
from ccm.supervisor.commands import Verbosity
from ccm.supervisor.reload import RELOAD_INTERVAL, Reloader
from ccm.supervisor.systemd import SystemdNotifier

pytestmark = pytest.mark.virtual_time

NO_ANSWER = NotReplaced("503", may_pass=True)
REFUSED = NotReplaced("401", may_pass=False)


class Reloads:
    """A reloader whose workers are replaced or not as `ends` has it, and when that was asked."""

    def __init__(self, *ends: NotReplaced | None) -> None:
        self.ends, self.asked = list(ends), list[float]()
        verbosity = Verbosity(Settings(), lambda _: None)
        self.reloader = Reloader(self._replace_all, verbosity, SystemdNotifier({}))

    async def _replace_all(self) -> NotReplaced | None:
        self.asked.append(asyncio.get_running_loop().time())
        return self.ends.pop(0)

    @property
    def pauses(self) -> list[float]:
        return [round(later - one) for one, later in zip(self.asked, self.asked[1:], strict=False)]


async def test_a_reload_that_may_pass_is_tried_again_until_it_succeeds() -> None:
    world = Reloads(NO_ANSWER, NO_ANSWER, None)
    answer = await world.reloader.reload()
    assert "go on with what they have: 503; the reload is tried again in 30 s" in answer["error"]
    await asyncio.sleep(10 * RELOAD_INTERVAL)
    assert (world.pauses, world.ends) == ([RELOAD_INTERVAL] * 2, [])


async def test_refused_credentials_are_not_shown_to_the_cloud_again() -> None:
    world = Reloads(NO_ANSWER, REFUSED)
    await world.reloader.reload()
    await asyncio.sleep(10 * RELOAD_INTERVAL)
    assert world.pauses == [RELOAD_INTERVAL]


async def test_a_reload_on_request_takes_the_place_of_the_one_that_waits() -> None:
    world = Reloads(NO_ANSWER, None)
    await world.reloader.reload()
    await asyncio.sleep(RELOAD_INTERVAL / 2)
    assert "ok" in await world.reloader.reload()
    await asyncio.sleep(10 * RELOAD_INTERVAL)
    assert world.pauses == [RELOAD_INTERVAL / 2]


async def test_a_supervisor_that_stops_tries_nothing_again() -> None:
    world = Reloads(NO_ANSWER, NO_ANSWER)
    await world.reloader.reload()
    world.reloader.stop()
    await world.reloader.reload()
    await asyncio.sleep(10 * RELOAD_INTERVAL)
    assert len(world.asked) == 2
