"""The verbosity changes while processes run, for those that start later, too."""

import logging
from collections.abc import Iterator

import pytest

from ccm.bus.frames import LogLevel, Message
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.log import set_verbosity
from ccm.settings import Settings
from ccm.supervisor.commands import Verbosity


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    yield
    set_verbosity(0)


class Spoken(list[Message]):
    """What was broadcast."""

    def verbosity(self, settings: Settings) -> Verbosity:
        return Verbosity(settings, self.append)


def test_a_new_level_counts_here_in_every_worker_and_in_those_to_come() -> None:
    spoken = Spoken()
    verbosity = spoken.verbosity(Settings(v=1))
    assert verbosity.level == 1
    verbosity.set(4)
    assert logging.getLogger("ccm").level == logging.DEBUG
    assert (spoken, verbosity.level) == ([LogLevel(4)], 4)


def test_a_reload_follows_the_file_of_flags() -> None:
    spoken = Spoken()
    verbosity = spoken.verbosity(Settings(config="ccm.yaml"))
    verbosity.reread = lambda: Settings(config="ccm.yaml", v=5, node_workers=9)
    assert verbosity.reload() == "the verbosity is 5, other flags need a restart"
    assert spoken == [LogLevel(5)]


def test_without_a_file_a_reload_keeps_what_was_set_by_hand() -> None:
    spoken = Spoken()
    verbosity = spoken.verbosity(Settings())
    verbosity.set(4)
    assert verbosity.reload() == "flags need a restart"
    assert (spoken, verbosity.level) == ([LogLevel(4)], 4)


def test_a_file_that_is_wrong_by_now_changes_nothing() -> None:
    def refuse() -> Settings:
        raise ConfigurationFaults([ConfigurationFault("--v", "'x' is no number", "write one")])

    spoken = Spoken()
    verbosity = spoken.verbosity(Settings(config="ccm.yaml", v=2))
    verbosity.reread = refuse
    assert verbosity.reload() == "flags are wrong by now: --v: 'x' is no number; write one"
    assert (spoken, verbosity.level) == ([], 2)
