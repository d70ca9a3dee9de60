"""The cluster that these tests share."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.kubelets.world import FLAGS, NAMES, World
from tests.support.kube.build import KUBELETS, OLDER_KUBELETS, find_binaries
from tests.support.kube.kubelets import REMEDY, Kubelets
from tests.support.needed import needed
from tests.support.running import IS_LONG, RULES, Cloud, Supervisor, Where

RELEASES = {pin.version: pin for pin in (KUBELETS, *(OLDER_KUBELETS.values() if IS_LONG else ()))}
"""Of kubelets; the API server's and kube-controller-manager's is always the newest."""


@pytest.fixture(scope="package", params=RELEASES)
def running(
    request: pytest.FixtureRequest, kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Kubelets, Cloud, Supervisor]]:
    programs = [
        needed(find_binaries((pin,)), f"kubelets are not built: {REMEDY}")
        for pin in (RELEASES[request.param], KUBELETS)
    ]
    directory = tmp_path_factory.mktemp("kubelets")
    with ExitStack() as held:
        kubelets = held.enter_context(Kubelets.start(kube_binaries, programs, directory, NAMES))
        kubelets.cluster.grant("ccm", RULES)
        cloud = held.enter_context(Cloud(directory))
        where = Where(directory, kubelets.cluster.kubeconfig("ccm"), cloud.config)
        supervisor = held.enter_context(Supervisor(where, *FLAGS))
        yield kubelets, cloud, supervisor


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, running: tuple[Kubelets, Cloud, Supervisor]
) -> AsyncIterator[World]:
    kubelets, cloud, supervisor = running
    async with cloud.admin() as admin:
        yield World(request.node.callspec.params["running"], kubelets, cloud, admin, supervisor)
