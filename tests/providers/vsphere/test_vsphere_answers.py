"""What a vCenter may answer that is odd, without the lab."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyVmomi import vim

from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError
from ccm.model.cloud import Instance, Unknown
from ccm.providers.vsphere.config import VCenter, VsphereConfig
from ccm.providers.vsphere.credentials import CredentialSource
from ccm.providers.vsphere.instances import VsphereInstances
from ccm.providers.vsphere.inventory import MOST_PLACES, Inventory, Machine, Place
from ccm.providers.vsphere.search import Found, Search
from ccm.providers.vsphere.soap import SessionEnded, Soap
from ccm.providers.vsphere.vcenter import MANAGERS, Session, VCenterApi

VCENTER = VCenter("lab", "localhost", 443, user="user", password="password")
ENVELOPE = (
    '<?xml version="1.0" encoding="{encoding}"?>{type}<soapenv:Envelope '
    'xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body>'
    '<LogoutResponse xmlns="urn:vim25">{text}</LogoutResponse></soapenv:Body></soapenv:Envelope>'
)


def api(name: str = "lab") -> VCenterApi:
    vcenter = replace(VCENTER, name=name)
    return VCenterApi(vcenter, CredentialSource(vcenter, None), KitGate(10.0), "test")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_an_answer_with_entities_is_not_read(encoding: str) -> None:
    """Each byte of it may be a hundred in memory."""
    entities = f'<!DOCTYPE x [<!ENTITY a "{"a" * 10}">]>'
    soap = Soap()
    manager = soap.reference(vim.SessionManager, "SessionManager")
    soap.read(manager, "Logout", ENVELOPE.format(encoding="utf-8", type="", text="").encode())
    body = ENVELOPE.format(encoding=encoding, type=entities, text="&a;" * 10).encode(encoding)
    with pytest.raises(CloudError, match="it declares entities, or is not UTF-8"):
        soap.read(manager, "Logout", body)


def test_folders_without_end_keep_no_process_busy() -> None:
    """What each of many machines is in is looked up in them, by all that is done for Nodes."""
    places = {f"f-{at}": Place("Folder", f"f-{at}", "", f"f-{at + 1}") for at in range(20_000)}
    machines = {f"vm-{at}": Machine(f"vm-{at}", "", "", {"parent": "f-0"}) for at in range(500)}
    inventory = Inventory("lab", machines, places)
    assert not any(map(inventory.is_ours, machines.values()))
    assert len([*inventory.chain("f-0")]) == MOST_PLACES


def test_a_copy_of_the_uuid_in_a_datacenter_that_is_not_ours_is_no_node() -> None:
    """Any user who may create machines there chooses their UUIDs."""
    uuid = "42aaaaaa-ab00-4c00-8000-00000000000a"
    ours, others = Place("Datacenter", "dc-1", "ours", ""), Place("Datacenter", "dc-2", "other", "")
    inventory = Inventory("lab", places={"dc-1": ours, "dc-2": others}, datacenters=[ours])
    search = Search({"lab": inventory}, cast(Any, {"lab": None}))
    for moid, place in (("vm-2", "dc-2"), ("vm-1", "dc-1"), ("vm-3", "dc-1")):
        inventory.add(Machine(moid, "node-1", uuid, {"parent": place}))
        found = [item.machine.moid for item in search.by_uuid(uuid)]
        assert found == {"vm-2": ["vm-2"], "vm-1": ["vm-1"], "vm-3": ["vm-1", "vm-3"]}[moid]


def test_a_host_name_of_any_length_is_none() -> None:
    """A guest writes it: of one with many dots each part was another name of its Node."""
    names = ["node-1", "node-1.example", "node-1.example.com"]
    for written, expected in (("Node-1.example.com", names), ("." * 4000, [""])):
        machine = Machine("vm-1", "node-1", "", {"guest.hostName": written})
        assert [*machine.guest_names()] == expected


@pytest.mark.parametrize("odd", ["two words", "line\n", "t\u20ack"])
async def test_a_session_that_no_request_could_show_is_not_kept(odd: str) -> None:
    """No call would leave until the process ends."""
    vcenter, sessions = api(), [odd, "session-of-a-vcenter"]

    async def rest(operation: str, method: str, path: str, *_: Any) -> object:
        return sessions.pop(0) if (method, path) == ("POST", "/session") else "value"

    cast(Any, vcenter)._rest = rest
    with pytest.raises(CloudError, match="no session"):
        await vcenter.rest("GetTag", "GET", "/tagging/tag/id:x")
    assert await vcenter.rest("GetTag", "GET", "/tagging/tag/id:x") == "value"
    await vcenter.close()


@pytest.mark.parametrize("what", ["cookie", "content", "manager"])
async def test_a_login_whose_answers_are_odd_is_made_again(what: str) -> None:
    vcenter, attempt = api(), 0
    managers = "propertyCollector rootFolder sessionManager viewManager searchIndex"
    content = type("Content", (), dict.fromkeys((*managers.split(), "authorizationManager"), "x"))

    async def call(cookie: str, target: Any, method: str, *_: Any) -> tuple[Any, str]:
        nonlocal attempt
        if method == "RetrieveContent":
            attempt += 1
            odd: dict[str, dict[str, Any]] = {
                "content": {"sessionManager": None},
                "manager": {"viewManager": "none"},
            }
            return type("Content", (content,), odd.get(what, {}) if attempt == 1 else {}), ""
        if method == "Login":
            is_odd = what == "cookie" and sum(it == "Login" for it in calls) == 0
            calls.append(method)
            return type("User", (), {"key": "k"}), "a=\x85" if is_odd else "vmware_soap_session=b"
        calls.append(method)
        if target == "none":
            raise CloudError("ManagedObjectNotFound")
        return ("view",), ""

    calls = list[str]()
    cast(Any, vcenter)._call = call
    with pytest.raises(CloudError):
        await vcenter.open_session()
    session = await vcenter.open_session()
    assert session.cookie == "vmware_soap_session=b"
    vcenter._session = None


async def test_managers_that_are_none_are_read_again_with_the_next_session() -> None:
    """Each list failed until the process ended."""
    vcenter, known = api(), dict.fromkeys(MANAGERS, "x")
    contents = [known | {"propertyCollector": "none"}, known]

    async def call(cookie: str, target: Any, method: str, *_: Any) -> tuple[Any, str]:
        if method == "RetrieveContent":
            return SimpleNamespace(**contents.pop(0)), ""
        if target == "none":
            raise SessionEnded("ManagedObjectNotFound")
        if method == "Login":
            return SimpleNamespace(key="k"), "vmware_soap_session=b"
        return ["view"], ""

    async def read(session: Session) -> Any:
        collector = vcenter.content.propertyCollector
        return await vcenter.call(session, collector, "RetrievePropertiesEx")

    cast(Any, vcenter)._call = call
    assert await vcenter.in_session(read) == ["view"]
    vcenter._session = None


@pytest.mark.parametrize(
    "odd",
    [
        [SimpleNamespace(propSet=[], missingSet=[], obj=None)],
        [SimpleNamespace(propSet=5, missingSet=[], obj=None)],
        ["text"],
    ],
)
async def test_an_odd_answer_of_one_vcenter_leaves_the_others_served(odd: list[Any]) -> None:
    """All Nodes were unknown for it."""
    moid, uuid = "vm-1", "42aaaaaa-ab00-4c00-8000-00000000000a"
    values = {"name": "node-1", "config.uuid": uuid}
    properties = [SimpleNamespace(name=name, val=value) for name, value in values.items()]
    machine = SimpleNamespace(propSet=properties, missingSet=[], obj=vim.VirtualMachine(moid))
    apis = [api("good"), api("odd")]
    for vcenter, answer in zip(apis, ([machine], odd), strict=True):
        cast(Any, vcenter).in_session = answering(answer)
    config = VsphereConfig(tuple(it.vcenter for it in apis))
    asked = [node("node-1", f"vsphere://{uuid}"), node("node-2", f"vsphere://{uuid[:-1]}b")]
    answers = await VsphereInstances(apis, config).describe(asked)
    assert isinstance(answers["node-1"], Instance)
    lost = answers["node-2"]
    assert isinstance(lost, Unknown)
    assert "odd: ListInventory: the answer is not understood" in lost.why


def answering(answer: Any) -> Callable[..., Awaitable[Any]]:
    """What answers all calls with this."""

    async def in_session(*_: object) -> Any:
        return answer

    return in_session


async def test_odd_tags_are_why_a_zone_is_not_known() -> None:
    """Nodes in other vCenters were unknown for them."""
    vcenter = api()
    cast(Any, vcenter).rest = answering([{"object_id": {"id": "dc-1"}, "tag_ids": 5}])
    config = VsphereConfig((VCENTER,), region_category="region", zone_category="zone")
    instances = VsphereInstances([vcenter], config)
    inventory = Inventory("lab", places={"dc-1": Place("Datacenter", "dc-1", "dc", "")})
    machine = Machine("vm-1", "node-1", "", {"parent": "dc-1"})
    found = Found(cast(Any, None), inventory, machine)
    topologies = await instances._topologies([found])
    assert "not iterable" in topologies["vm-1", "lab"].why_not
