"""Nobody is gone on doubt: rights, quorum, lists that are short, and answers that are none."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count, islice
from typing import Any, cast

import pytest
from aiohttp import web

from ccm.errors import CloudError, NotFound
from ccm.model.cloud import Gone, Instance, Unknown
from ccm.model.objects import Node
from ccm.providers.proxmox.api import ProxmoxApi
from ccm.providers.proxmox.inventory import DOUBTS, MOST_LEFT, Identity, Inventory, ListedMachine
from ccm.providers.proxmox.search import Found, Search
from tests.providers.proxmox.conftest import Started, node_with
from tests.providers.proxmox.served import ALL_RIGHTS, LIST, TOKEN, Served, config_of
from tests.providers.proxmox.test_proxmox_instances import OTHER_UUID, UUID, why

ASKED = node_with("node-1", UUID, "proxmox://one/100")
NAMED = node_with("node-1", UUID, f"proxmox://{UUID}")
UNNAMED = node_with("node-1", UUID)


ZONE = "topology.kubernetes.io/zone"


def answer_with(listed: Any) -> Callable[[Any], Any]:
    """What answers lists with this."""

    async def answer(request: object) -> web.Response:
        return web.json_response({"data": listed})

    return answer


async def test_a_deleted_machine_is_gone_by_all_proofs(pve: Served, cloud: Started) -> None:
    """PX12: list, quorum, rights, its last host, and the list again."""
    pve.add(100, "node-1", UUID, node="pve2")
    await cloud.known(ASKED)
    pve.remove(100)
    pve.requests.clear()
    assert isinstance(await cloud.describe_one(ASKED), Gone)
    asked = [path.removeprefix("/api2/json") for path in pve.paths()]
    proofs = ["/cluster/status", "/access/permissions", "/nodes/pve2/qemu/100/config"]
    assert asked == [LIST, *proofs, LIST]


async def test_after_a_restart_too(pve: Served, cloud: Started) -> None:
    assert isinstance(await cloud.describe_one(ASKED), Gone)


async def test_many_that_are_gone_share_what_they_can(pve: Served, cloud: Started) -> None:
    nodes = [node_with(f"n-{vmid}", "", f"proxmox://one/{vmid}") for vmid in range(100, 120)]
    answers = await cloud.describe(*nodes)
    assert all(isinstance(one, Gone) for one in answers.values())
    assert [len(pve.paths(one)) for one in ("/cluster/status", "/access/permissions")] == [1, 1]
    assert len(pve.paths(LIST)) < 10, "the second list is shared"


async def test_a_uuid_that_no_machine_has_is_gone(pve: Served, cloud: Started) -> None:
    pve.add(101, "other", OTHER_UUID)
    assert isinstance(await cloud.describe_one(NAMED), Gone)


async def test_a_machine_without_a_uuid_may_be_anyones(pve: Served, cloud: Started) -> None:
    pve.add(101, "other")
    assert "machine 101 of one has no UUID" in await cloud.why(NAMED)


@pytest.mark.parametrize("is_named", [True, False])
async def test_nodes_that_state_another_uuid_of_a_machine_have_it_read_few_times(
    pve: Served, cloud: Started, is_named: bool
) -> None:
    """Each cost a call, before those that join: of ever new names, these waited for a minute."""
    pve.add(100, "node-1", UUID)
    for number in range(20):
        name, provider_id = ("node-1", "") if is_named else (f"n-{number}", "proxmox://one/100")
        answers = await cloud.describe(node_with(name, OTHER_UUID, provider_id))
        assert isinstance(answers[name], Unknown)
    assert len(pve.paths("/config")) <= DOUBTS + 1
    assert isinstance(await cloud.describe_one(UNNAMED), Instance)


async def test_nodes_that_name_one_machine_together_have_it_read_once(
    pve: Served, cloud: Started
) -> None:
    """At each start of the worker, five hundred kept those that joined waiting for 20 s."""
    pve.add(100, "node-1", UUID)
    others = (node_with(f"n-{at}", OTHER_UUID, "proxmox://one/100") for at in range(20))
    answers = await cloud.describe(*others, UNNAMED)
    assert isinstance(answers["node-1"], Instance)
    assert len(pve.paths("/config")) <= 2


async def test_a_node_that_states_another_uuid_of_a_machine_keeps_no_other_from_being_gone(
    pve: Served, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's configuration is read again then, and was taken for unread meanwhile."""
    pve.add(101, "other", OTHER_UUID)
    read, turns, is_read = Inventory.identity, count(), asyncio.Event()
    search = Search.by_uuid

    async def identity(inventory: Inventory, machine: ListedMachine) -> Identity:
        """The one about the hostile Node is answered last."""
        found = await read(inventory, machine)
        if not next(turns):
            await is_read.wait()
        return found

    async def by_uuid(self: Search, node: Node, uuid: str) -> Sequence[Found]:
        found = await search(self, node, uuid)
        is_read.set()
        return found

    monkeypatch.setattr(Inventory, "identity", identity)
    monkeypatch.setattr(Search, "by_uuid", by_uuid)
    hostile = node_with("hostile", UUID, "proxmox://one/101")
    assert isinstance((await cloud.describe(hostile, NAMED))[NAMED.name], Gone)


async def test_a_uuid_is_looked_for_in_the_list_of_after(pve: Served, cloud: Started) -> None:
    """A machine that the first list did not have may be the one."""
    pve.add(100, "pet", UUID)
    pve.on_list = first_empty(pve)
    assert "changed meanwhile" in await cloud.why(NAMED)
    assert isinstance(await cloud.describe_one(NAMED), Instance)


def first_empty(pve: Served) -> Callable[[Any], Any]:
    """What answers lists with nothing once, and rightly from then on."""
    lists = 0

    async def answer(request: object) -> object:
        nonlocal lists
        lists += 1
        if lists == 1:
            return web.json_response({"data": []})
        return await type(pve)._resources(pve, request)

    return answer


async def test_a_node_without_an_id_is_never_gone(pve: Served, cloud: Started) -> None:
    assert "the token may see is node-1" in await cloud.why(UNNAMED)


@pytest.mark.parametrize("asked", [ASKED, NAMED, UNNAMED])
async def test_an_empty_list_of_a_token_without_rights_deletes_no_one(
    pve: Served, cloud: Started, asked: Any
) -> None:
    """PX13: 200 and no machines; what is said names the right, and so does what check reads."""
    pve.add(100, "node-1", UUID)
    await cloud.known(ASKED)
    pve.acl = {TOKEN: [("/", {"Sys.Audit"})]}
    reported = await cloud.why(asked)
    assert asked is UNNAMED or "VM.Audit on /vms, propagated" in reported
    assert cloud.instances
    missing = await cloud.instances.missing_permissions()  # type: ignore[attr-defined]
    assert missing == ["one: VM.Audit on /vms, propagated"]


async def test_a_token_that_sees_some_says_nothing_of_the_others(
    pve: Served, cloud: Started
) -> None:
    """PX14."""
    pve.add(100, "node-1", UUID)
    pve.add(101, "node-2", OTHER_UUID)
    pve.acl = {TOKEN: [("/vms/101", {"VM.Audit"}), ("/", {"Sys.Audit"})]}
    seen = node_with("node-2", OTHER_UUID, "proxmox://one/101")
    hidden, there = (await cloud.describe(ASKED, seen)).values()
    assert "may not see all" in why(hidden)
    assert isinstance(there, Instance)


@pytest.mark.parametrize(
    ("permissions", "is_sure"),
    [
        ({"/": {"VM.Audit": 1}}, True),
        ({"/": {}, "/vms": {"VM.Audit": 1}}, True),
        ({"/": {"VM.Audit": 0}}, False),
        ({"/": {"VM.Audit": 1}, "/vms": {}}, False),
        ({"/": {"VM.Audit": 1}, "/vms/100": {}}, False),
        ({"/": {"VM.Audit": True}}, True),
        ({"/vms": "all"}, False),
        ([], False),
    ],
)
async def test_a_right_has_to_reach_every_machine(
    pve: Served, cloud: Started, permissions: Any, is_sure: bool
) -> None:
    async def answer(*_: object) -> Any:
        return permissions

    pve.on_permissions = answer
    assert isinstance(await cloud.describe_one(ASKED), Gone) is is_sure


async def test_the_rights_that_check_names(pve: Served) -> None:
    pve.acl = {TOKEN: [("/vms", {"VM.Audit"})]}
    cloud = await Started(config_of(pve.section(), features={"mode": "auto"})).start()
    assert cloud.instances
    missing = await cloud.instances.missing_permissions()  # type: ignore[attr-defined]
    assert missing == ["one: Sys.Audit on /", "one: VM.GuestAgent.Audit on /vms"]
    pve.acl = {TOKEN: [("/", {*ALL_RIGHTS, "VM.Monitor"} - {"VM.GuestAgent.Audit"})]}
    assert await cloud.instances.missing_permissions() == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("asked", [ASKED, NAMED])
async def test_without_quorum_no_one_is_gone(pve: Served, cloud: Started, asked: Any) -> None:
    """PX16: what runs is served."""
    pve.add(101, "node-2", OTHER_UUID)
    pve.lose_quorum()
    there = node_with("node-2", OTHER_UUID, "proxmox://one/101")
    answers = await cloud.describe(asked, there)
    assert "one has no quorum" in why(answers["node-1"])
    assert isinstance(answers["node-2"], Instance)
    pve.regain_quorum()
    assert isinstance(await cloud.describe_one(asked), Gone)


async def test_a_cluster_that_is_down_takes_no_other_along(pve: Served, other: Served) -> None:
    """PX17: by name nobody is taken for another either."""
    pve.add(100, "node-1", UUID)
    other.add(200, "node-2", OTHER_UUID)
    cloud = await Started(config_of(pve.section(), other.section("two"))).start()
    away = node_with("node-2", OTHER_UUID, "proxmox://two/200")
    lost = node_with("node-4", OTHER_UUID, f"proxmox://{numbered()}")
    other.fault = {"status": 503}
    answers = await cloud.describe(ASKED, away, node_with("node-3"), lost)
    assert isinstance(answers["node-1"], Instance)
    assert all("503" in why(answers[name]) for name in ("node-2", "node-3", "node-4"))
    assert "503" in why((await cloud.describe(ASKED, node_with("node-1b")))["node-1b"])
    with pytest.raises(CloudError, match="503"):
        await cloud.describe(away)


def numbered() -> str:
    return UUID[:-1] + "f"


async def test_a_machine_that_moved_while_it_was_asked_for_is_there(
    pve: Served, cloud: Started
) -> None:
    """PX15: the first list is short, its host says 500, and the second list has it."""
    pve.add_node("pve2")
    machine = pve.add(100, "node-1", UUID, node="pve1")
    await cloud.known(ASKED)
    machine.node = "pve2"
    pve.on_list = first_empty(pve)
    assert "is in the list again" in await cloud.why(ASKED)


async def test_a_machine_that_its_host_has_is_not_gone(pve: Served, cloud: Started) -> None:
    pve.add(100, "node-1", UUID)
    pve.on_list = answer_with([])
    assert "host pve1 has machine 100" in await cloud.why(ASKED)


async def test_a_last_host_that_is_away_proves_nothing(pve: Served, cloud: Started) -> None:
    pve.add(100, "node-1", UUID)
    await cloud.known(ASKED)
    pve.remove(100)
    pve.set_node_offline("pve1")
    assert "595" in await cloud.why(ASKED)


@pytest.mark.parametrize(
    "listed",
    [
        [{"vmid": "100", "node": "pve1", "type": "qemu"}],
        [{"vmid": 101, "node": "../..", "type": "qemu"}],
        [{"vmid": 101, "node": "pve1", "type": "other"}],
        [None],
        [{"vmid": 101, "node": "pve1", "type": "qemu", "name": "a"}] * 2,
    ],
)
async def test_a_list_that_is_not_understood_is_a_doubt(
    pve: Served, cloud: Started, listed: Any
) -> None:
    pve.on_list = answer_with(listed)
    assert "in the answer" in await cloud.why(ASKED)


@pytest.mark.parametrize("body", ["", "<html>", "{}", '{"data": null}', '{"data": {}}', "[]"])
async def test_a_body_that_is_none_is_one_error(pve: Served, cloud: Started, body: str) -> None:
    """PX31."""
    pve.fault = {"status": 200, "text": body}
    with pytest.raises(CloudError, match="the answer is no"):
        await cloud.describe_one(ASKED)


@pytest.mark.parametrize("body", ["", "<html>does not exist</html>"])
async def test_an_error_without_words_is_an_error(pve: Served, cloud: Started, body: str) -> None:
    """PX31."""
    pve.add(100, "node-1", UUID)
    pve.fail("GET", "/config", 500, body or " ", html=True)
    assert "GetConfig: 500" in await cloud.why(ASKED)
    pve.remove(100)
    assert "GetConfig: 500" in await cloud.why(ASKED)


async def test_what_else_does_not_exist_is_no_proof(pve: Served, cloud: Started) -> None:
    pve.fail("GET", "/config", 500, "storage 'vms' does not exist")
    assert "storage 'vms' does not exist" in await cloud.why(ASKED)


@pytest.mark.parametrize("label", [{}, {ZONE: "pve1"}, {ZONE: "pve9"}])
async def test_after_a_start_each_host_is_asked(
    pve: Served, cloud: Started, label: dict[str, str]
) -> None:
    """PX12: where it was last, nobody knows; a kubelet may write any zone."""
    pve.add_node("pve2")
    pve.add(100, "node-1", UUID, node="pve2")
    pve.on_list = answer_with([])
    asked = node_with("node-1", UUID, "proxmox://one/100")
    asked.raw["metadata"]["labels"] = label
    assert "host pve2 has machine 100" in await cloud.why(asked)
    pve.remove(100)
    assert isinstance(await cloud.describe_one(asked), Gone)


async def test_one_mixed_up_configuration_makes_no_one_gone(pve: Served, cloud: Started) -> None:
    """What it said was kept for as long as the machine ran."""
    pve.add(100, "node-1", UUID)
    answers = [{"smbios1": f"uuid={OTHER_UUID}", "name": "node-1"}]
    assert cloud.instances
    api = cloud.instances._inventories["one"].api  # type: ignore[attr-defined]
    get = api.get

    async def mixed_up(operation: str, path: str, **query: str) -> Any:
        answer = await get(operation, path, **query)
        return answers.pop() if operation == "GetConfig" and answers else answer

    api.get = mixed_up
    assert "machine 100 of one has UUID" in await cloud.why(NAMED)
    assert isinstance(await cloud.describe_one(NAMED), Instance)


async def test_hosts_without_number_are_asked_one_after_another() -> None:
    """One answer that names them made as many calls at once for each machine that is missed."""
    asked, under_way, most = 0, 0, 0

    class Api:
        region = "one"

        async def get(self, operation: str, path: str, **query: str) -> Any:
            nonlocal asked, under_way, most
            if operation == "GetClusterStatus":
                hosts = [{"type": "node", "name": f"pve{at}"} for at in range(1000)]
                return [{"type": "cluster", "quorate": 1}, *hosts]
            if operation != "GetConfig":
                return {"/": {"VM.Audit": 1}} if operation == "GetPermissions" else []
            asked, under_way = asked + 1, under_way + 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            raise NotFound(f"Configuration file '{path.removesuffix('/config')}.conf' is not there")

    inventory = Inventory(cast(ProxmoxApi, Api()))
    assert not await inventory.why_incomplete()
    assert not await inventory.why_kept(100)
    assert (asked, most) == (1000, 1)


async def test_lists_of_other_machines_each_time_take_no_memory() -> None:
    """The last host of each was remembered for ever."""
    vmids = count(100)

    class Api:
        region = "one"

        async def get(self, operation: str, path: str, **query: str) -> Any:
            listed = islice(vmids, 1000)
            return [{"vmid": vmid, "node": "pve1", "type": "qemu"} for vmid in listed]

    inventory = Inventory(cast(ProxmoxApi, Api()))
    for _ in range(100):
        await inventory.read()
    assert len(inventory._hosts) < 2 * 1000 + MOST_LEFT
