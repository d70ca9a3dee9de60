"""The verbosity changes while processes run, for those that start later, too."""

import logging
from collections.abc import Iterator

import pytest

from ccm.bus.frames import LogLevel, Message
from ccm.log import set_verbosity
from ccm.settings import Settings
from ccm.supervisor.commands import Verbosity


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    yield
    set_verbosity(0)


def test_a_new_level_counts_here_in_every_worker_and_in_those_to_come() -> None:
    spoken: list[Message] = []
    verbosity = Verbosity(Settings(v=1), spoken.append)
    assert verbosity.level == 1
    verbosity.set(4)
    assert logging.getLogger("ccm").level == logging.DEBUG
    assert logging.getLogger("aiohttp").getEffectiveLevel() > logging.DEBUG
    assert verbosity.reload() == "flags need a restart"  # without a file, what was set stays
    assert (spoken, verbosity.level) == ([LogLevel(4)], 4)
    verbosity.set(3)
    assert logging.getLogger("ccm").level == logging.INFO
