"""Tags as the upstream controller leaves and finds them, beside the real one."""

from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.model.objects import Json
from ccm.providers.aws.tags import read_tags
from ccm.sandbox.kubelets import registration
from tests.peers import upstream
from tests.peers.upstream import Upstream
from tests.providers.aws.proxy import Proxy
from tests.providers.aws.world import ZONES, Account, config_text
from tests.support.kube.build import PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import Supervisor, Where, until

pytestmark = pytest.mark.real

NODES = "/api/v1/nodes"
TAGS = {"team": "web", "tier": ""}
FLAGS = (
    "--cloud-provider=aws",
    "--controllers=cloud-node,tagging",
    "--leader-elect=false",
    "--tags=team=web,tier=",
    "--resources=instance",
)


async def test_ours_takes_over_from_upstream_without_a_write_and_upstream_from_ours(
    tmp_path: Path, cluster: RealCluster, api: Kube, account: Account, proxy: Proxy
) -> None:
    binaries = needed(find_binaries(PEERS), "upstream's controllers are not built: `make peers`")
    config = tmp_path / "aws.conf"
    # With a subnet given, upstream's asks no instance metadata.
    config.write_text(config_text(account, proxy.url, f"SubnetID = {account.public[ZONES[0]]}"))
    where = Where(tmp_path, cluster.kubeconfig("ccm"), config)
    machines = account.launch(3)

    def theirs() -> Upstream:
        admin = cluster.kubeconfig("admin")
        return upstream.aws(tmp_path, binaries, admin, config, proxy.url, *FLAGS)

    async def join(machine: Json) -> None:
        await api.post(NODES, registration(machine["PrivateDnsName"]))

    async def leave(machine: Json) -> None:
        await api.request("DELETE", f"{NODES}/{machine['PrivateDnsName']}")

    async def until_tagged(*expected: Json) -> None:
        def are() -> bool:
            found = [read_tags(account.instance(one["InstanceId"])["Tags"]) for one in machines]
            return [tags.items() >= TAGS.items() for tags in found] == [
                machine in expected for machine in machines
            ]

        await until("just these are tagged", are)

    one, two, three = machines
    with theirs():
        await join(one)
        await join(two)
        await until_tagged(one, two)
        await leave(one)
        await until_tagged(two)
    proxy.reset()
    with Supervisor(where, *FLAGS) as supervisor:
        await until("it has looked", lambda: supervisor.workers().get("tagging", {}).get("done"))
        assert proxy.writes() == []
        await join(three)
        await until_tagged(two, three)
        await leave(two)
        await until_tagged(three)
        assert supervisor.end() == 0
    with theirs():
        await join(one)
        await until_tagged(one, three)
        await leave(three)
        await until_tagged(one)
