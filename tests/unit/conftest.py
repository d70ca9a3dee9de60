"""A directory that a socket fits in; servers that send what a test wants."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ccm.cloud.gate import WorkerGate
from tests.support.cloud import GrantSource
from tests.support.deadlines import timeout
from tests.unit.children_world import Spawns, World
from tests.unit.raw_http import RawHttp, Transport, tls_transport


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """An empty directory whose path leaves room for a socket name."""
    with TemporaryDirectory(prefix="ccm-") as directory:
        yield Path(directory)


@pytest.fixture
async def spawns() -> AsyncIterator[Spawns]:
    spawns = Spawns()
    yield spawns
    spawns.close()


@pytest.fixture
async def world(
    short_dir: Path, spawns: Spawns, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[World]:
    """Whose callbacks all work: one that raises would be called again."""
    yield World(short_dir, spawns)
    failed = [record for record in caplog.get_records("call") if record.name == "ccm.background"]
    assert failed == []


@pytest.fixture
async def grants() -> GrantSource:
    return GrantSource()


@pytest.fixture
async def gate(grants: GrantSource) -> WorkerGate:
    return WorkerGate(grants, timeout=timeout(), check=lambda: None)


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Transport:
    return tls_transport(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["plain", "tls"])
def serving(request: pytest.FixtureRequest) -> RawHttp:
    """Every test that has it runs over both."""
    is_tls = request.param == "tls"
    return RawHttp(request.getfixturevalue("tls") if is_tls else Transport())
