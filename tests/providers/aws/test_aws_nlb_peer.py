"""Network Load Balancers as the upstream controller leaves them, beside the real one."""

from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.aws.elb.annotations import PREFIX
from ccm.sandbox.kubelets import registration
from tests.peers import upstream
from tests.providers.aws.world import ZONES, Aws, config_text
from tests.support.kube.build import PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import until

pytestmark = pytest.mark.real

SERVICES = "/api/v1/namespaces/default/services"
FLAGS = (
    "--controllers=cloud-node,service",
    "--leader-elect=false",
    "--configure-cloud-routes=false",
    "--cluster-name=test",
)
MANAGED = "NLBSecurityGroupMode = Managed"
PREFERRED: Json = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}


async def test_an_nlb_with_its_group_is_taken_as_it_is_and_goes_with_all(
    tmp_path: Path, cluster: RealCluster, api: Kube, aws: Aws
) -> None:
    """Neither its group nor its IP address type is written, whatever families are preferred."""
    binaries = needed(find_binaries(PEERS), "upstream's controllers are not built: `make peers`")
    aws.add_ipv6()
    config = tmp_path / "aws.conf"
    extra = f"SubnetID = {aws.public[ZONES[0]]}\n{MANAGED}"
    config.write_text(config_text(aws, aws.proxy.url, extra))
    (machine,) = aws.launch()
    name = machine["PrivateDnsName"]
    await api.post("/api/v1/nodes", registration(name))

    async def is_known() -> bool:
        return bool(Node(await api.get(f"/api/v1/nodes/{name}")).provider_id)

    async def is_served() -> bool:
        return bool(Service(await api.get(f"{SERVICES}/web")).ingress)

    def has_targets() -> bool:
        groups = aws.target_groups()
        return len(groups) == 2 and all(map(aws.targets, groups))

    with upstream.aws(
        tmp_path, binaries, cluster.kubeconfig("admin"), config, aws.proxy.url, *FLAGS
    ):
        await until("upstream knows the node", is_known)
        await api.post(SERVICES, WEB)
        await until("upstream has the node behind it", has_targets)
        await until("upstream serves it", is_served)
    node = Node(await api.get(f"/api/v1/nodes/{name}"))
    one = Service(await api.get(f"{SERVICES}/web"))
    one.raw["spec"] |= PREFERRED
    await aws.start(MANAGED)
    before = {group["GroupId"]: group["IpPermissions"] for group in aws.security_groups()}
    assert len(before) == 3
    aws.proxy.reset()
    await aws.ensure(one, [node])
    assert set(aws.proxy.writes()) == {"elbv2:AddTags"}  # the Service's UID, which upstream lacks
    assert before == {group["GroupId"]: group["IpPermissions"] for group in aws.security_groups()}
    (nlb,) = aws.nlbs()
    assert (nlb["IpAddressType"], len(nlb["SecurityGroups"])) == ("ipv4", 1)
    await aws.delete(one)
    assert {group["GroupName"] for group in aws.security_groups()} == {"default", "nodes"}
    assert not [*aws.nlbs(), *aws.target_groups()]


WEB: Json = {
    "metadata": {"name": "web", "annotations": {f"{PREFIX}type": "nlb"}},
    "spec": {
        "type": "LoadBalancer",
        "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}],
    },
}
