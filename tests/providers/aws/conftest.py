"""One emulator for all tests here, with a fresh account, a proxy and a provider for each."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from tests.e2e.conftest import api, cluster
from tests.providers.aws.emulator import CREDENTIALS, Emulator
from tests.providers.aws.proxy import Proxy
from tests.providers.aws.world import Account, Aws

__all__ = ["api", "cluster"]


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(tmp_path_factory.mktemp("moto")) as emulator:
        yield emulator


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials for the emulator, and nothing of the machine that the tests run on."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session")
def kept(emulator: Emulator) -> Account:
    account = Account.make(emulator)
    emulator.keep()
    return account


@pytest.fixture
def account(kept: Account) -> Account:
    kept.emulator.reset()
    return replace(kept, public={**kept.public}, private={**kept.private})


@pytest.fixture
def proxy(emulator: Emulator) -> Iterator[Proxy]:
    with Proxy(emulator.url) as proxy:
        yield proxy


@pytest.fixture
async def aws(account: Account, proxy: Proxy) -> AsyncIterator[Aws]:
    world = Aws(**vars(account), proxy=proxy)
    await world.start()
    yield world
    await world.close()
