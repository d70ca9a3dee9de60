"""Nodes and the token, against the real services."""

from pathlib import Path

import pytest

from ccm.cloud import credentials
from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Denied, Throttled
from ccm.model.cloud import Gone, Instance, PowerState, Unknown
from ccm.providers.openstack import api
from tests.labs.openstack.lab import Lab
from tests.providers.openstack.started import Started
from tests.support.running import long, wait_for
from workers.node.plan import followed_labels

pytestmark = [long, pytest.mark.timeout(300)]

ABSENT = node("gone", "openstack:///00000000-0000-4000-8000-000000000000")
NODE_1 = node("node-1")


def provider_id(lab: Lab, name: str) -> str:
    return f"openstack:///{lab.world['servers'][name]}"


async def test_all_nodes_cost_one_call(lab: Lab, cloud: Started) -> None:
    """OS1, OS2."""
    names = list(lab.world["servers"])
    answers = await cloud.describe(*map(node, names))
    assert {name: a.provider_id for name, a in answers.items() if isinstance(a, Instance)} == {
        name: provider_id(lab, name) for name in names
    }
    assert cloud.operations == ["GetToken", "ListServers"]
    one = answers["node-1"]
    assert isinstance(one, Instance)
    assert (one.type, one.zone, one.region) == ("m1.small", "zone-a", "RegionOne")
    assert lab.world["floating"]["node-1"] in [address.address for address in one.addresses]


async def test_names_are_exact(cloud: Started) -> None:
    """OS5, OS6: prefixes and what a regular expression would match are other names."""
    asked = ["node", "node.1", "node-", "NODE-1", "node-1node-2"]
    answers = await cloud.describe(*map(node, asked))
    assert {type(answer) for answer in answers.values()} == {Gone}


async def test_a_name_of_two_servers_is_not_guessed(lab: Lab, cloud: Started) -> None:
    """OS4, OS15, OS16."""
    one, two = lab.create_servers(["twin", "twin"])
    by_id = node("twin", f"openstack:///{one['id']}")
    try:
        answer = await cloud.describe_one(node("twin"))
        assert isinstance(answer, Unknown)
        assert one["id"] in answer.why
        assert two["id"] in answer.why
        lab.call("nova", "PUT", f"/servers/{one['id']}", {"server": {"name": "renamed"}})
        assert isinstance(await cloud.describe_one(by_id), Instance)
        lab.delete("nova", f"/servers/{one['id']}")
        assert isinstance(await cloud.describe_one(by_id), Gone)
        assert isinstance(await cloud.describe_one(node("twin")), Instance)
    finally:
        for server in (one, two):
            lab.delete("nova", f"/servers/{server['id']}")


async def test_a_stopped_server_is_off(lab: Lab, cloud: Started) -> None:
    """OS11."""
    server = lab.world["servers"]["two-nics-1"]
    lab.act(server, "os-stop", "SHUTOFF")
    try:
        answer = await cloud.describe_one(node("two-nics-1"))
        assert isinstance(answer, Instance)
        assert answer.power is PowerState.STOPPED
    finally:
        lab.act(server, "os-start", "ACTIVE")


@pytest.mark.parametrize("status", [500, 503, 403, 401])
async def test_what_is_no_answer_is_unknown_or_raised(
    lab: Lab, cloud: Started, status: int
) -> None:
    """OS8: also while only the second read, by ID, fails."""
    assert isinstance(await cloud.describe_one(ABSENT), Gone)
    with lab.faults({"service": "nova", "path": "/servers/[0-9a-f]{8}", "status": status}):
        assert isinstance(await cloud.describe_one(ABSENT), Unknown)
    with lab.faults({"service": "nova", "status": status}), pytest.raises(CloudError):
        await cloud.describe_one(ABSENT)


async def test_an_empty_list_says_nothing(lab: Lab, cloud: Started) -> None:
    """OS9: a server that is there is found by its ID."""
    there = node("node-1", provider_id(lab, "node-1"))
    empty = {"service": "nova", "path": "/servers/detail", "status": 200, "body": '{"servers": []}'}
    with lab.faults(empty):
        assert isinstance(await cloud.describe_one(there), Instance)
        assert isinstance(await cloud.describe_one(NODE_1), Unknown)


async def test_a_token_that_is_not_taken_is_renewed_once_for_all(lab: Lab, cloud: Started) -> None:
    """OS92, OS93."""
    await cloud.describe_one(NODE_1)
    with lab.faults({"service": "nova", "status": 401, "count": 1}):
        assert isinstance(await cloud.describe_one(NODE_1), Instance)
    assert cloud.operations.count("GetToken") == 2


async def test_refused_credentials_are_not_shown_again_and_again(lab: Lab) -> None:
    """OS93."""
    cloud = await Started(lab.config.replace("secret = ", "secret = wrong")).start()
    for _ in range(3):
        with pytest.raises(Denied, match="refuses the credentials"):
            await cloud.describe_one(NODE_1)
    assert cloud.operations == ["GetToken"]


async def test_keystone_may_be_down_at_the_start(lab: Lab, cloud: Started) -> None:
    """OS94, OS95."""
    for fault, error in (({"status": 503}, CloudError), ({"status": 429}, Throttled)):
        with lab.faults({"service": "keystone", **fault}), pytest.raises(error):
            await cloud.describe_one(NODE_1)
    assert isinstance(await cloud.describe_one(NODE_1), Instance)


async def test_a_token_is_renewed_in_time_and_used_on_while_keystone_is_down(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS92: here its time has come at once."""
    monkeypatch.setattr(credentials, "RENEW_AT", 0.0)
    for _ in range(2):
        assert isinstance(await cloud.describe_one(NODE_1), Instance)
    assert cloud.operations.count("GetToken") == 2
    with lab.faults({"service": "keystone", "status": 503}):
        for _ in range(3):
            assert isinstance(await cloud.describe_one(NODE_1), Instance)
    assert cloud.operations.count("GetToken") == 3, "Keystone is left alone for a while"


async def test_a_reader_reads_and_its_missing_permissions_are_reported(lab: Lab) -> None:
    """OS96."""
    ours, reader = (lab.world["application_credentials"][name] for name in ("ccm", "ccm-reader"))
    config = lab.config.replace(ours["id"], reader["id"]).replace(ours["secret"], reader["secret"])
    cloud = await Started(config).start()
    try:
        described = await cloud.describe_one(NODE_1)
        assert isinstance(described, Instance)
        assert cloud.routes
        with pytest.raises(Denied, match="403"):
            await invoke(
                cloud.routes.create, node("node-1", described.provider_id), "10.244.250.0/24"
            )
    finally:
        await cloud.close()


async def test_servers_are_found_on_all_pages(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS3."""
    monkeypatch.setattr(api, "PAGE", 2)
    names = list(lab.world["servers"])
    answers = await cloud.describe(*map(node, names))
    assert {type(answer) for answer in answers.values()} == {Instance}
    assert cloud.operations.count("ListServers") > len(names) // 2


async def test_the_region_stands_in_new_ids_where_it_is_wanted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS21, OS22."""
    monkeypatch.setenv("OS_CCM_REGIONAL", "true")
    cloud = await Started(lab.config).start()
    server, short = lab.world["servers"]["node-1"], node("short", provider_id(lab, "node-1"))
    other = node("other", f"openstack://Elsewhere/{server}")
    answers = await cloud.describe(NODE_1, short, other)
    found = [one.provider_id for one in answers.values() if isinstance(one, Instance)]
    assert found == [f"openstack://RegionOne/{server}", short.provider_id]
    assert isinstance(answers["other"], Unknown)


async def test_credentials_are_exchanged_without_a_restart(lab: Lab, tmp_path: Path) -> None:
    path = f"/users/{lab.user_id}/application_credentials"
    first, second = (
        lab.call("keystone", "POST", path, {"application_credential": {"name": name}})
        for name in ("first", "second")
    )
    file = tmp_path / "cloud.conf"

    def config(made: dict[str, dict[str, str]]) -> str:
        ours, new = lab.world["application_credentials"]["ccm"], made["application_credential"]
        return lab.config.replace(ours["id"], new["id"]).replace(ours["secret"], new["secret"])

    file.write_text(config(first))
    cloud = await Started(file.read_text(), str(file)).start()
    try:
        assert isinstance(await cloud.describe_one(NODE_1), Instance)
        file.write_text(config(second))
        lab.call("keystone", "DELETE", f"{path}/{first['application_credential']['id']}")
        with lab.faults({"service": "nova", "status": 401, "count": 1}):  # as once it has expired
            assert isinstance(await cloud.describe_one(NODE_1), Instance)
        assert cloud.operations.count("GetToken") == 2
    finally:
        lab.call("keystone", "DELETE", f"{path}/{second['application_credential']['id']}")
        await cloud.close()


async def test_floating_addresses_come_and_go(lab: Lab, cloud: Started) -> None:
    """OS29."""
    public, nodes = (lab.world["networks"][name] for name in ("public", "nodes"))
    server = lab.world["servers"]["two-nics-1"]
    (port,) = lab.get("neutron", f"/ports?device_id={server}&network_id={nodes}")
    body = {"floatingip": {"floating_network_id": public, "port_id": port["id"]}}
    made = lab.call("neutron", "POST", "/floatingips", body)["floatingip"]

    async def external() -> list[str]:
        answer = await cloud.describe_one(node("two-nics-1"))
        assert isinstance(answer, Instance)
        return [a.address for a in answer.addresses if a.type == "ExternalIP"]

    def is_reported() -> bool:
        return "floating" in str(lab.get("nova", f"/servers/{server}")["addresses"])

    wait_for("Nova knows the address", is_reported)
    assert await external() == [made["floating_ip_address"]]
    lab.delete("neutron", f"/floatingips/{made['id']}")
    wait_for("Nova knows that it is gone", lambda: not is_reported())
    assert await external() == []


async def test_a_resized_server_has_its_new_flavor(lab: Lab, cloud: Started) -> None:
    """OS17: the label follows, and no taint comes."""
    (made,) = lab.create_servers(["resized"])
    try:
        resize = {"resize": {"flavorRef": lab.world["flavors"]["m1.small"]}}
        lab.call("nova", "POST", f"/servers/{made['id']}/action", resize)
        lab.wait_for_server(made["id"], "VERIFY_RESIZE")
        answer = await cloud.describe_one(node("resized"))
        assert isinstance(answer, Instance)
        assert (answer.type, answer.power) == ("m1.small", PowerState.RUNNING)
        old = {"node.kubernetes.io/instance-type": "m1.tiny"}
        assert followed_labels(answer, old)["node.kubernetes.io/instance-type"] == "m1.small"
    finally:
        lab.delete("nova", f"/servers/{made['id']}")
