"""What ours costs beside upstream's controllers; the table is made by `make bench PARTS=clouds`."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.peers.azure.world import BY_INTERFACE
from tests.peers.costs import (
    ADMITTED,
    ARRIVING,
    CLOUDS,
    COLD,
    COUNT,
    DELETED,
    GONE,
    MADE,
    RESTART,
    Cloud,
    Row,
    measure,
)
from tests.peers.world import OURS, UPSTREAM
from tests.support.running import long

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(1800)]

PLACES = [
    pytest.param(cloud, count, id=f"{cloud.name}-{count}")
    for cloud in CLOUDS
    for count in cloud.sizes
]
MOST = {
    "gce": {COLD: 8, ARRIVING: 20, MADE: 80, DELETED: 50, RESTART: 20},
    "azure, by address": {COLD: 24, MADE: 60, DELETED: 60, RESTART: 15},
    "azure, by interface": {COLD: 24, RESTART: 15},
    "aws": {COLD: 6, RESTART: 40},
}
"""Calls of ours, at any size; Nodes that come one by one are read in a few batches more."""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path, as sockets need one."""
    with TemporaryDirectory(prefix="costs-") as path:
        yield Path(path)


def calls(row: Row, who: str = OURS) -> int:
    return int(row[f"{who}: calls"])


@pytest.mark.parametrize(("cloud", "count"), PLACES)
def test_ours_calls_no_more_than_it_may(
    kube_binaries: Path, directory: Path, cloud: Cloud, count: int
) -> None:
    for row in measure(cloud, kube_binaries, directory, count):
        print(row)
        name, what = str(row["cloud"]), str(row["what"])
        if most := MOST[name].get(what):
            assert calls(row) <= most, row
        if what == MADE and name.endswith(BY_INTERFACE):
            assert calls(row) <= count + 60
            assert calls(row) < calls(row, UPSTREAM) / 3
        if what == RESTART:
            assert row["ours: writes"] == 0
        if what == ADMITTED:
            assert row["ours: s"] == f"{COUNT} of {COUNT}"
        if what == GONE:
            assert isinstance(row["ours: s"], float), row
