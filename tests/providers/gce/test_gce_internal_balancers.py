"""Internal load balancers: groups, backend services, and what several of them share."""

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from ccm.cloud.testkit.harness import node, service
from ccm.errors import CloudError
from ccm.model.objects import Json
from ccm.providers.gce.lb import backends
from ccm.providers.gce.lb.request import GLOBAL_ACCESS, OLD_TYPE, SHARE, SUBNET, TYPE
from tests.labs.gce.project import PROJECT, REGION, ZONES
from tests.labs.gce.server import Gce
from tests.providers.gce.balancers import (
    NAME,
    delete,
    ensure,
    hosts,
    left,
    only,
    parts_of,
    published,
    web,
)
from tests.providers.gce.conftest import Start, Started
from tests.providers.gce.test_gce_balancers import ID, PLAIN

INTERNAL = {TYPE: "Internal"}
GROUP = f"k8s-ig--{ID}"
PARTS = sorted(
    [
        f"backendServices/{NAME}",
        f"firewalls/k8s-fw-{NAME}",
        f"firewalls/k8s-{ID}-node-hc",
        f"forwardingRules/{NAME}",
        f"healthChecks/k8s-{ID}-node",
        *[f"instanceGroups/{GROUP}"] * 3,
    ]
)


def group(gce: Gce, zone: str) -> Json:
    path = f"projects/{PROJECT}/zones/{zone}/instanceGroups/{GROUP}"
    return gce.cloud.members[path]


@pytest.mark.parametrize("key", [TYPE, OLD_TYPE])
async def test_each_zone_has_a_group_behind_one_service(gce: Gce, cloud: Started, key: str) -> None:
    """GC46: and nothing is left of them."""
    asked = web(80, 81, annotations={key: "Internal"})
    made = await ensure(cloud, asked, *hosts(gce))
    assert left(gce) == PARTS
    rule, backend = only(gce, "forwardingRules"), only(gce, "backendServices")
    assert (rule["IPAddress"], rule["ports"]) == (made.ingress[0].ip, ["80", "81"])
    assert rule["IPAddress"].startswith("10.132.")
    zones = [one["group"].split("/")[-3] for one in backend["backends"]]
    assert sorted(zones) == list(ZONES)
    assert [len(group(gce, zone)) for zone in ZONES] == [1, 1, 1]
    gce.calls.clear()
    await ensure(cloud, asked, *hosts(gce, 0), *[])
    await delete(cloud, asked)
    assert left(gce) == []


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("", "networkTier"),
        ("", "portRange"),
        ("Internal", "loadBalancingScheme"),
        ("Internal", "ports"),
    ],
)
async def test_a_rule_that_is_listed_without_a_part_keeps_its_address(
    gce: Gce, cloud: Started, kind: str, part: str
) -> None:
    """Without its scheme an internal one was deleted, and made again with another address."""
    asked, nodes = web(annotations={TYPE: kind} if kind else {}), hosts(gce)
    published(asked, (await ensure(cloud, asked, *nodes)).ingress[0].ip)
    before = deepcopy(gce.cloud.objects)

    def lacking(answer: Any) -> Any:
        content, response = answer
        if content.get("kind") == "compute#forwardingRuleList":
            rules = [{**rule, part: None} for rule in content["items"]]
            content = {**content, "items": rules}
        return content, response

    cloud.gate.spoil = lacking
    with pytest.raises(CloudError, match=f"lacks {part}"):
        await ensure(cloud, asked, *nodes)
    assert gce.cloud.objects == before


async def test_a_backend_service_that_someone_put_behind_its_rule_is_not_deleted(
    gce: Gce, cloud: Started
) -> None:
    """Nor do its groups leave it when Nodes change."""
    asked, parts, nodes = web(annotations=INTERNAL), gce.cloud.objects, hosts(gce)
    await ensure(cloud, asked, *nodes)
    (path,) = [path for path in parts if path.endswith(f"backendServices/{NAME}")]
    (rule,) = [path for path in parts if path.endswith(f"forwardingRules/{NAME}")]
    theirs = path.replace(NAME, "theirs")
    link = parts[path]["selfLink"].replace(NAME, "theirs")
    parts[theirs] = {**parts[path], "name": "theirs", "description": "by hand", "selfLink": link}
    parts[rule]["backendService"] = link
    parts[theirs]["backends"] = []
    with pytest.raises(CloudError, match="backend service theirs, which is not the Service's"):
        await parts_of(cloud).update_nodes(asked, nodes[1:])
    assert parts[theirs]["backends"] == []
    await delete(cloud, asked)
    assert "backendServices/theirs" in left(gce)
    assert f"forwardingRules/{NAME}" not in left(gce)


async def test_unchanged_it_is_only_read(gce: Gce, cloud: Started) -> None:
    nodes, asked = hosts(gce), web(annotations=INTERNAL)
    await ensure(cloud, asked, *nodes)
    gce.calls.clear()
    await ensure(cloud, asked, *nodes)
    await parts_of(cloud).update_nodes(asked, nodes)
    assert gce.writes() == []
    await parts_of(cloud).update_nodes(asked, nodes[1:])
    assert [len(group(gce, zone)) for zone in ZONES] == [0, 1, 1]
    assert len(only(gce, "backendServices")["backends"]) == 2


async def test_with_more_than_five_ports_it_has_all(gce: Gce, cloud: Started) -> None:
    """GC47: the firewall has the Service's only."""
    nodes = hosts(gce)
    before = await ensure(cloud, web(80, annotations=INTERNAL), *nodes)
    made = await ensure(cloud, web(*range(80, 86), annotations=INTERNAL), *nodes)
    assert made.ingress == before.ingress
    rule = only(gce, "forwardingRules")
    assert (rule.get("allPorts"), "ports" in rule) == (True, False)
    assert gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]["allowed"][0]["ports"] == ["80-85"]
    await ensure(cloud, web(80, annotations=INTERNAL), *nodes)
    assert only(gce, "forwardingRules")["ports"] == ["80"]


async def test_a_member_that_is_there_spoils_no_batch(gce: Gce, cloud: Started) -> None:
    """GC48."""
    gce.fault("instanceGroups.addInstances", status=400, reason="memberAlreadyExists")
    await ensure(cloud, web(annotations=INTERNAL), *hosts(gce))
    assert [len(group(gce, zone)) for zone in ZONES] == [1, 1, 1]


@pytest.mark.parametrize("is_ready", [False, True])
async def test_instances_that_never_were_push_no_member_out_of_a_full_group(
    gce: Gce, cloud: Started, monkeypatch: pytest.MonkeyPatch, is_ready: bool
) -> None:
    """A kubelet may register a thousand Nodes that name some, and keep them Ready."""
    monkeypatch.setattr(backends, "MAX_MEMBERS", 3)
    nodes, asked = hosts(gce), web(annotations=INTERNAL)
    await ensure(cloud, asked, *nodes)
    zone = nodes[0].provider_id.rpartition("/")[0]
    made = [node(f"a-{at}", f"{zone}/a-{at}") for at in range(6)]
    for item in made:
        item.raw["status"] = {"conditions": [{"type": "Ready", "status": str(is_ready)}]}
    gce.calls.clear()
    with pytest.raises(CloudError, match="not trusted" if is_ready else "left out"):
        await parts_of(cloud).update_nodes(asked, [*made, *nodes])
    assert "instanceGroups.removeInstances" not in gce.writes()
    assert [len(group(gce, item)) for item in ZONES] == [1, 1, 1]


async def test_other_groups_keep_their_instances(gce: Gce, cloud: Started) -> None:
    """GC49: also when ours are deleted."""
    nodes = hosts(gce)
    at = f"projects/{PROJECT}/zones/{ZONES[0]}/instanceGroups/other"
    gce.cloud.put(at, "instanceGroup", size=1, zone=gce.cloud.link(at.rpartition("/inst")[0]))
    gce.cloud.members[at] = {"there": {"instance": "there"}}
    await ensure(cloud, web(annotations=INTERNAL), *nodes)
    await delete(cloud, web(annotations=INTERNAL))
    assert left(gce) == ["instanceGroups/other"]
    assert gce.cloud.members[at]


async def test_a_changed_fingerprint_is_read_again(gce: Gce, cloud: Started) -> None:
    """GC50: what someone else has set stays."""
    nodes, asked = hosts(gce), web(annotations=INTERNAL)
    await ensure(cloud, asked, *nodes)
    only(gce, "backendServices")["connectionDraining"] = {"drainingTimeoutSec": 30}
    gce.fault("regionBackendServices.patch", status=412, reason="conditionNotMet")
    gce.calls.clear()
    await ensure(cloud, web(annotations=INTERNAL, sessionAffinity="ClientIP"), *nodes)
    backend = only(gce, "backendServices")
    assert backend["sessionAffinity"] == "CLIENT_IP"
    assert backend["connectionDraining"] == {"drainingTimeoutSec": 30}
    assert gce.writes() == ["regionBackendServices.patch"] * 2


async def test_one_kind_goes_before_the_other_comes(gce: Gce, cloud: Started) -> None:
    """GC51."""
    nodes = hosts(gce)
    for annotations, parts in (({}, PLAIN), (INTERNAL, PARTS), ({}, PLAIN)):
        gce.calls.clear()
        await ensure(cloud, web(annotations=annotations), *nodes)
        assert left(gce) == parts
        rules = [one for one in gce.writes() if one.startswith("forwardingRules")]
        assert rules[-1] == "forwardingRules.insert"


async def test_options_are_set_and_another_subnet_is_another_address(
    gce: Gce, cloud: Started
) -> None:
    """GC52."""
    nodes = hosts(gce)
    path = f"projects/{PROJECT}/regions/{REGION}/subnetworks/second"
    gce.cloud.put(path, "subnetwork", ipCidrRange="10.133.0.0/20")
    first = await ensure(cloud, web(annotations={**INTERNAL, GLOBAL_ACCESS: "true"}), *nodes)
    assert only(gce, "forwardingRules")["allowGlobalAccess"] is True
    made = await ensure(cloud, web(annotations={**INTERNAL, SUBNET: "second"}), *nodes)
    assert made.ingress != first.ingress
    assert made.warnings
    rule = only(gce, "forwardingRules")
    assert (rule["subnetwork"].endswith("second"), rule["allowGlobalAccess"]) == (True, False)
    external = await ensure(cloud, web(annotations={SUBNET: "second"}), *nodes)
    assert any(SUBNET in warning for warning in external.warnings)


async def test_services_share_a_backend_if_they_ask_for_it(gce: Gce, cloud: Started) -> None:
    """By upstream's name; the last of them takes it away."""
    nodes, annotations = hosts(gce), {**INTERNAL, SHARE: "true"}
    services = [service(name, annotations) for name in ("one", "two")]
    for asked in services:
        await ensure(cloud, asked, *nodes)
    digest = "6eef6648406c333a"  # as upstream's provider made it on the server
    assert only(gce, "backendServices")["name"] == f"k8s-{ID}-internal-tcp-nmv1-{digest}"
    await delete(cloud, services[0])
    assert len(gce.cloud.named("backendServices")) == 1
    await delete(cloud, services[1])
    assert left(gce) == []


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({"uid": "0123456789abcdef"}, "0123456789abcdef"),
        ({"uid": "0123456789abcdef", "provider-uid": "fedcba9876543210"}, "fedcba9876543210"),
        ({}, ID),
    ],
)
async def test_upstreams_cluster_id_is_in_the_names_of_shared_parts(
    gce: Gce, start: Start, data: Mapping[str, str], wanted: str
) -> None:
    """GC42: where there is none, ours is made, once for all that come together."""
    asked = list[tuple[str, str]]()

    async def keep(namespace: str, name: str, own: Mapping[str, str]) -> Mapping[str, str]:
        asked.append((namespace, name))
        await asyncio.sleep(0)
        return data or own

    cloud = await start(keep_config_map=keep)
    nodes = hosts(gce)
    await asyncio.gather(*(ensure(cloud, service(name), *nodes) for name in ("one", "two")))
    assert only(gce, "httpHealthChecks")["name"] == f"k8s-{wanted}-node"
    assert asked == [("kube-system", "ingress-uid")]
