"""Others wait no longer while a tenant, a kubelet or a neighbour on the network attacks.

Blocks of attack take turns with blocks of calm, and of the same load on the API server alone, so
that all see the same machine. Honest clients make and delete Services, let machines join, probe
and scrape all the while, in a process of their own. With `CCM_LONG` there are 15 minutes of each
attack, or `CCM_ATTACK_SECONDS`, and waits are compared; else they have to end.
"""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from bench.figures import percentile, table
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from tests.integration.https.test_real import REVIEWER
from tests.support.attackers import (
    OTHER_CLASS,
    SERVICES,
    TENANT,
    Attack,
    Site,
    calm,
    changing_address,
    large_config_map,
    large_node,
    large_services,
    names_left,
    new_leader,
    no_worker_died,
    packed_bodies,
    refused_texts,
    silent_connections,
)
from tests.support.cluster_nodes import add_machines_and_nodes
from tests.support.deadlines import timeout
from tests.support.environment import force_delete
from tests.support.honest import HOST, Wait, read_waits
from tests.support.kube.cluster import NAMESPACES, RealCluster
from tests.support.kube.ports import ReservedPort
from tests.support.running import IS_LONG, Cloud, Running, Supervisor, Where, long, until

SECONDS = float(os.environ.get("CCM_ATTACK_SECONDS", "900" if IS_LONG else "3"))
"""Of each attack, all blocks together; there is half as much calm."""
BLOCK = 180.0
FLAGS = ("--controllers=cloud-node,cloud-node-lifecycle,service", "--cloud-rate=write=200")
PROBED_WITHIN, LATE = 1.0, 0.001  # seconds that a kubelet waits; the share that may wait longer
SERVED, ASKED = frozenset({"service", "service's end", "node"}), frozenset({"probe", "scrape"})
MORE = 2.0  # times what the same takes without the attack

Waits = Mapping[str, Mapping[str, list[Wait]]]  # by what for, and by the block that they began in

pytestmark = [pytest.mark.real, pytest.mark.alone, pytest.mark.timeout(4 * SECONDS + 120)]


@pytest.fixture
async def tenant(api: Kube) -> AsyncIterator[None]:
    """The namespace of the tenant, in which a test that fails leaves no Service."""
    with suppress(KubernetesError):  # another test has made it
        await api.post(NAMESPACES, {"metadata": {"name": TENANT}})
    yield
    for name in await names_left(api):
        with suppress(KubernetesError):  # its finalizer was all that it had
            await force_delete(api, f"{SERVICES}/{name}")


@dataclass
class Blocks:
    """What took turns, and when by the wall clock. Each lasts until all of `served` came once."""

    site: Site
    honest: Running
    file: Path
    served: frozenset[str]
    times: list[tuple[str, float, float]] = field(default_factory=list)

    async def run(self, attacks: Mapping[str, Attack]) -> None:
        rounds = max(1, round(SECONDS / BLOCK))
        for _ in range(rounds):
            for name, attack in attacks.items():
                began = time.time()
                seconds = SECONDS / rounds / (1 if name == "attack" else 2)
                async with attack(self.site):
                    await asyncio.sleep(began + seconds - time.time())
                    await until(f"all are served beside {name}", lambda: self._served(began))  # noqa: B023
                    assert self.honest.process.poll() is None, self.honest.tail()
                self.times.append((name, began, time.time()))

    def _served(self, began: float) -> bool:
        waits = read_waits(self.file)
        return self.served <= {wait.what for wait in waits if wait.began >= began}

    def sorted(self, waits: list[Wait]) -> Waits:
        """The waits by what for, and by the block that they began in."""
        found: dict[str, dict[str, list[Wait]]] = defaultdict(lambda: defaultdict(list))
        for wait in waits:
            for name, began, ended in self.times:
                if began <= wait.began < ended:
                    found[wait.what][name].append(wait)
        return found


async def run(
    site: Site, directory: Path, cluster: RealCluster, cloud: Cloud, attacks: Mapping[str, Attack]
) -> Waits:
    """Let the blocks take turns beside honest clients; what those waited for."""
    file = directory / "waits"
    words = (cluster.kubeconfig("admin"), cloud.url, site.port, cluster.token("admin"), file)
    with Running("honest", directory, ["tests.support.honest", *map(str, words)]) as honest:
        await until("the honest are served", lambda: file.exists() and len(read_waits(file)) > 4)
        blocks = Blocks(site, honest, file, SERVED | (ASKED if site.port else set()))
        await blocks.run(attacks)
        no_worker_died(site.leader)
    found = blocks.sorted(read_waits(file))
    print(table([row(what, name, of) for what, by in found.items() for name, of in by.items()]))
    return found


def row(what: str, block: str, waits: list[Wait]) -> dict[str, float | str]:
    seconds = [wait.seconds for wait in waits]
    return {
        "what": what,
        "block": block,
        "number": len(waits),
        "p50 s": percentile(seconds, 0.5),
        "p99 s": percentile(seconds, 0.99),
        "most s": max(seconds),
        "above 1 s": sum(one > PROBED_WITHIN for one in seconds),
    }


@pytest.mark.parametrize(
    "attacks",
    [
        pytest.param(
            {
                "calm": calm,
                "same load": partial(refused_texts, loadBalancerClass=OTHER_CLASS),
                "attack": refused_texts,
            },
            id="refused texts",
        ),
        pytest.param({"calm": calm, "attack": silent_connections}, id="silence"),
        pytest.param({"calm": calm, "attack": packed_bodies}, id="packed bodies", marks=long),
        pytest.param({"calm": calm, "attack": changing_address}, id="changing address", marks=long),
        pytest.param(
            {"calm": calm, "same load": large_config_map, "attack": large_node}, id="large node"
        ),
    ],
)
async def test_others_wait_no_longer(
    attacks: Mapping[str, Attack],
    cluster: RealCluster,
    cloud: Cloud,
    where: Where,
    api: Kube,
    tenant: None,
) -> None:
    cluster.grant("ccm", REVIEWER)
    port = ReservedPort()
    address = (f"--bind-address={HOST}", f"--secure-port={port.number}", "--permit-port-sharing")
    with Supervisor(where, *FLAGS, *address) as leader:
        leader.wait_running()
        await add_machines_and_nodes(api, cloud.url, 2)
        before = leader.pids()
        waits = await run(Site(api, port.number, leader), where.directory, cluster, cloud, attacks)
        assert leader.pids() == before
    wait_no_longer(waits)
    allowed = LATE + (late_share(waits, "calm") if IS_LONG else 0.0)
    assert late_share(waits, "attack") <= allowed


async def test_others_wait_no_longer_beside_large_services_and_a_new_leader(
    cluster: RealCluster, cloud: Cloud, where: Where, api: Kube, tenant: None
) -> None:
    numbers, replicas = count(1), list[Supervisor]()

    def start() -> Supervisor:
        replicas.append(Supervisor(where, *FLAGS, name=f"replica-{next(numbers)}"))
        return replicas[-1]

    attacks: Mapping[str, Attack] = {
        "calm": new_leader,
        "same load": partial(large_services, loadBalancerClass=OTHER_CLASS),
        "attack": large_services,
    }
    try:
        leader = start()
        leader.wait_running()
        await add_machines_and_nodes(api, cloud.url, 2)
        site = Site(api, 0, leader, start(), start)
        wait_no_longer(await run(site, where.directory, cluster, cloud, attacks))
    finally:
        for replica in replicas:
            replica.end()


def wait_no_longer(waits: Waits) -> None:
    """Fails where something does not come beside an attack, or comes much later than without."""
    for what in sorted(SERVED):
        seconds = {name: [wait.seconds for wait in found] for name, found in waits[what].items()}
        attacked = seconds.pop("attack")
        assert max(attacked) < timeout(), what
        for share in (0.5, 0.99) if IS_LONG else ():
            limit = MORE * max(percentile(usual, share) for usual in seconds.values())
            assert percentile(attacked, share) <= limit, f"{what} p{share * 100:g}"


def late_share(waits: Waits, block: str) -> float:
    """The share of probes and scrapes that were not answered while the one who asks waits."""
    asked = [wait for what in ASKED for wait in waits[what][block]]
    late = [
        wait for wait in asked if wait.seconds > PROBED_WITHIN * (1.0 if IS_LONG else wait.slowness)
    ]
    return len(late) / len(asked)
