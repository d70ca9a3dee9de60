"""Records of Incus and what they say about Nodes; its errors and what they mean."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from aiohttp import web

from ccm.cloud.lookup import MAX_READS
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Conflict, Denied, NotFound, Refused, RetryAfter
from ccm.http import BodyTooLarge, HttpResponse, path_of
from ccm.model.objects import Json, Node
from ccm.providers.incus import ids
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import (
    BALANCE,
    FORWARD,
    REPLUG,
    STOPPED,
    BalancerSection,
    NodeSection,
    Remote,
    RouteSection,
)
from ccm.providers.incus.instances import IncusInstances, host_name, type_of
from ccm.providers.incus.inventory import (
    MAX_ADDRESSES,
    NODE_KEY,
    InstanceList,
    Inventory,
    ListedInstance,
    instance_of,
)
from ccm.providers.incus.lb.addresses import Pools
from ccm.providers.incus.lb.backends import BackendReader
from ccm.providers.incus.lb.request import IPV4
from ccm.providers.incus.routes import BACK_WAIT, MARK, MAX_TEXT, IncusRoutes
from ccm.providers.incus.zones import zone_of
from tests.support.deadlines import timeout
from tests.support.waiting import let_run

UUID = "569e87ab-cb87-47b3-b02d-5e0899638304"
MAC, OTHER_MAC = "10:66:6a:9e:b3:f0", "10:66:6a:00:00:01"


@pytest.mark.parametrize(
    ("provider_id", "uuid", "name"),
    [
        (f"incus://k8s/{UUID}", UUID, ""),
        (f"incus://k8s/{UUID.upper()}", UUID, ""),
        ("lxc:///node-1", "", "node-1"),
        ("lxc:///../node-1", "", ""),
        ("incus://k8s/node-1", "", ""),
        (f"incus:///{UUID}", "", ""),
        (f"aws:///{UUID}", "", ""),
    ],
)
def test_a_provider_id_names_an_instance(provider_id: str, uuid: str, name: str) -> None:
    """IN6, IN7."""
    assert (ids.uuid_of(provider_id), ids.name_of(provider_id)) == (uuid, name)
    assert bool(ids.PROVIDER_IDS.fullmatch(provider_id)) == (not provider_id.startswith("aws"))


def nic(mac: str, *addresses: tuple[str, str]) -> dict[str, Any]:
    listed = [
        {
            "family": "inet6" if ":" in one else "inet",
            "address": one,
            "netmask": mask,
            "scope": scope,
        }
        for one, mask in addresses
        for scope in ("link" if one.startswith("fe80") else "global",)
    ]
    return {"hwaddr": mac, "addresses": listed}


def instance(network: Mapping[str, Any] | None = None, **changes: Any) -> ListedInstance:
    """A running instance with a NIC in two networks; `network` is what the guest has."""
    record = {
        "name": "node-1",
        "type": "container",
        "status_code": 103,
        "config": {
            "volatile.uuid": UUID,
            "volatile.eth0.hwaddr": MAC,
            "volatile.eth0.last_state.ip_addresses": "10.99.0.2,fd42:99::2",
        },
        "expanded_config": {},
        "expanded_devices": {
            "eth0": {"type": "nic", "network": "ovn0"},
            "eth1": {"type": "nic", "parent": "br0", "hwaddr": OTHER_MAC.upper()},
            "root": {"type": "disk"},
        },
        "state": {"network": network},
    }
    return ListedInstance(cast(IncusApi, None), "k8s", {**record, **changes})


@pytest.mark.parametrize(
    ("network", "addresses"),
    [
        pytest.param(
            {"eth0": nic(MAC, ("10.99.0.2", "24"), ("fe80::1", "64"), ("fd42:99::2", "64"))},
            ["10.99.0.2", "fd42:99::2"],
            id="IPv4 first, nothing link-local",
        ),
        pytest.param(
            {
                "lo": nic("", ("127.0.0.1", "8")),
                "eth0": nic(MAC, ("10.99.0.2", "24")),
                "cni0": nic("aa:aa:aa:aa:aa:aa", ("10.244.0.1", "24")),
                "vethx": nic("aa:aa:aa:aa:aa:ab", ("169.254.1.1", "32")),
            },
            ["10.99.0.2"],
            id="IN29 nothing of a CNI",
        ),
        pytest.param(
            {"eth1": nic(OTHER_MAC, ("10.88.0.2", "24")), "eth0": nic(MAC, ("10.99.0.2", "24"))},
            ["10.99.0.2", "10.88.0.2"],
            id="IN30 the configured network first",
        ),
        pytest.param(
            {"eth0": nic(MAC, ("10.99.0.2", "24"), ("10.99.0.200", "32"))},
            ["10.99.0.2"],
            id="no virtual IP",
        ),
        pytest.param({"eth0": nic(MAC, ("10.0.0.2", "32"))}, ["10.0.0.2"], id="a routed NIC"),
        pytest.param({"br0": nic(MAC, ("10.99.0.2", "24"))}, ["10.99.0.2"], id="a bridge over it"),
        pytest.param(
            {"eth0": nic(MAC, ("10.99.0.2", "24"))}, ["10.99.0.2"], id="IN31 IPv6 comes later"
        ),
        pytest.param({}, ["10.99.0.2", "fd42:99::2"], id="IN32 while a NIC is replugged"),
        pytest.param(None, ["10.99.0.2", "fd42:99::2"], id="while it is off"),
        pytest.param(
            {"eth0": nic(MAC, ("2001:db8::1%\x1b[31m", "64"), ("10.99.0.2", "24"))},
            ["10.99.0.2"],
            id="a zone of any text",
        ),
        pytest.param({"eth0": nic(MAC, ("nonsense", "24"))}, ["10.99.0.2", "fd42:99::2"], id="odd"),
    ],
)
def test_addresses_are_those_of_its_nics(network: Mapping[str, Any], addresses: list[str]) -> None:
    assert instance(network).addresses("ovn0") == addresses


def test_without_any_address_none_is_returned() -> None:
    assert instance(None, config={"volatile.uuid": UUID}).addresses("ovn0") == []


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, "container"),
        ({"limits.cpu": "4", "limits.memory": "8GiB"}, "container-c4-m8GiB"),
        ({"limits.cpu": "0-3,8"}, "container-c0-3-8"),
        ({"limits.memory": "50%"}, "container-m50"),
        ({"user.instance-type": "big one"}, "big-one"),
    ],
)
def test_a_type_is_a_label(config: Mapping[str, str], kind: str) -> None:
    assert type_of(instance(expanded_config=config)) == kind


def test_a_virtual_machine_is_an_instance_too() -> None:
    """Its guest names the interface, and limits and NICs are as a container's."""
    network = {"enp5s0": nic(MAC, ("10.99.0.2", "24"))}
    limits = {"limits.cpu": "4", "limits.memory": "8GiB"}
    machine = instance(network, type="virtual-machine", expanded_config=limits)
    assert type_of(machine) == "virtual-machine-c4-m8GiB"
    assert machine.addresses("ovn0") == ["10.99.0.2"]


@pytest.mark.parametrize(
    ("member", "zone"),
    [
        ({"server_name": "m1", "failure_domain": "default"}, "m1"),
        ({"server_name": "m1", "failure_domain": "rack-1"}, "rack-1"),
        ({"server_name": "m1", "groups": ["default", "zone-a"]}, "zone-a"),
        ({"server_name": "m1", "groups": ["zone-a", "zone-b"]}, "m1"),
        ({"server_name": "m1", "groups": None}, "m1"),
    ],
)
def test_a_member_has_a_zone(member: Mapping[str, Any], zone: str) -> None:
    assert zone_of(dict(member), "zone-") == zone


@pytest.mark.parametrize("given", ["..", "a/b", "", "a b", "%2e%2e"])
def test_a_host_name_that_no_instance_can_have_is_not_asked_for(given: str) -> None:
    """IN8."""
    asked = node("node-1")
    asked.raw["status"] = {"addresses": [{"type": "Hostname", "address": given}]}
    assert host_name(asked) == "node-1"
    assert path_of("instances", "a/../b?c=%d") == "/instances/a%2F..%2Fb%3Fc%3D%25d"


@pytest.mark.parametrize("names", [["K8S-CP-1"], ["k8s-cp-1"], ["K8S-CP-1", "k8s-cp-1"]])
def test_a_node_is_the_instance_of_its_name_in_any_case_of_letters(names: list[str]) -> None:
    """CT9: a kubelet writes small letters. Two that differ in their case alone are both found."""
    listed = InstanceList()
    for name in names:
        listed.add(instance(name=name))
    assert [one.name for one in listed.named("k8s-cp-1", node("k8s-cp-1"))] == names
    assert listed.named("k8s-cp-1", node("k8s-cp-2")) == []


def test_an_unreadable_or_new_instance_has_no_uuid() -> None:
    """IN69."""
    assert not instance(config=None).is_readable
    assert not instance(status_code=112).is_readable
    assert instance(config={}).is_readable
    assert not instance(config={"volatile.uuid": "odd"}).uuid


def read(status: int, body: bytes) -> object:
    """What comes of a response."""
    api = IncusApi("", Remote("https://127.0.0.1:9"), KitGate(1.0), "test")
    return api.read("GetServer", HttpResponse(status, "", {}, body))


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (403, "not authorized", Denied),
        (500, 'User does not have permissions for project "p"', Denied),
        (500, "Certificate is restricted", Denied),
        (404, "Instance not found", NotFound),
        (404, "Project not found", NotFound),
        (409, "A load balancer for that listen address already exists", Conflict),
        (500, 'Listen address "a" overlaps with another network or NIC', Conflict),
        (412, "Precondition failed", RetryAfter),
        (500, "Couldn't find a logical switch port for 10.99.0.9", RetryAfter),
        (500, "Failed to notify peer m2 at 10.0.0.2:8443: failed to notify peer", CloudError),
        (500, "Missing event connection with target cluster member", CloudError),
        (500, "Missing VIP target(s)", Refused),
        (400, "Invalid instance name", Refused),
        (500, "something that nobody has seen", CloudError),
        (502, "Invalid", CloudError),
    ],
)
def test_an_error_means_what_is_to_be_done(status: int, said: str, kind: type) -> None:
    """IN68."""
    with pytest.raises(CloudError, match=re.escape(said)) as raised:
        read(status, orjson.dumps({"type": "error", "error": said}))
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>", CloudError),
        (200, b"[]", CloudError),
        (200, b'{"type": "sync"}', CloudError),
        (200, b'{"type": "error", "error": "Invalid"}', CloudError),
        (202, b'{"type": "async", "operation": "/1.0/operations/x"}', RetryAfter),
        (500, b"<html>", CloudError),
        (404, b"", CloudError),
        (404, b"<html>", CloudError),
    ],
)
def test_an_answer_that_is_none_raises(status: int, body: bytes, kind: type) -> None:
    with pytest.raises(kind) as raised:
        read(status, body)
    assert not isinstance(raised.value, NotFound), "what stands before Incus proves nothing"


def api_that(get: Callable[..., Awaitable[Any]]) -> IncusApi:
    """One whose reads have these answers."""
    api = IncusApi("", Remote("https://127.0.0.1:9", project=("k8s",)), KitGate(1.0), "test")
    cast(Any, api).get = get
    return api


@pytest.mark.parametrize("mode", [BALANCE, FORWARD])
async def test_answers_without_any_address_of_several_instances_take_no_backend_away(
    mode: str,
) -> None:
    """A network without its configuration, or instances without devices, empty all of them."""
    listed, nodes = InstanceList(), list[Node]()
    for number in range(3):
        uuid = UUID[:-1] + str(number)
        listed.add(
            instance(name=f"n-{number}", config={"volatile.uuid": uuid}, expanded_devices={})
        )
        nodes.append(node(f"n-{number}", f"incus://k8s/{uuid}"))

    class Inventory:
        async def read(self, recursion: int) -> InstanceList:
            return listed

    async def get(operation: str, path: str, **query: str) -> Json:
        return {"name": path.rpartition("/")[2], "config": {}}

    section = BalancerSection(project="default", network="net", mode=mode)
    reader = BackendReader(api_that(get), cast(Any, Inventory()), section)
    with pytest.raises(CloudError, match="none of the 3 instances' addresses"):
        await reader.read(nodes)
    assert (await reader.read(nodes[:2])).backends == []


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        ("http.BODY_LIMIT", 20_000),
        ("cloud.json_api.MAX_PLACES", 1_000),
        ("cloud.json_api.MAX_RECORDS", 100),
    ],
)
async def test_what_a_guest_shows_makes_no_list_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """Root in an instance gives it addresses without number: the list of all instances has them."""
    many = [(f"fd00::{number:x}", "64") for number in range(500)]
    states: dict[str, Json] = {
        "node-1": {"network": {"eth0": nic(MAC, ("10.99.0.7", "24"))}},
        "hostile": {"network": {"eth0": nic(MAC, *many)}},
    }
    records: dict[str, Json] = {}
    for number, name in enumerate(states):
        config = {"volatile.uuid": UUID[:-1] + str(number), "volatile.eth0.hwaddr": MAC}
        records[name] = instance(name=name, config=config).record | {"state": None}
    asked = list[str]()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path_qs.removeprefix("/1.0/instances"))
        name, has_states = request.path.split("/")[-2], request.query.get("recursion") == "2"
        listed = [records[key] | ({"state": states[key]} if has_states else {}) for key in records]
        metadata = states[name] if request.path.endswith("/state") else listed
        return web.json_response({"type": "sync", "metadata": metadata})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "incus")).start()
    remote = Remote(f"unix://{tmp_path / 'incus'}", project=("k8s",))
    api = IncusApi("", remote, KitGate(timeout()), "test")
    try:
        inventory = Inventory([api])
        found = {item.name: item.guest_addresses("ovn0") for item in await inventory.read(2)}
        assert (found["node-1"], len(found["hostile"])) == (["10.99.0.7"], MAX_ADDRESSES)
        assert asked == ["?project=k8s&recursion=2"], "one call, as long as the list is small"
        monkeypatch.setattr(f"ccm.{limit}", most)
        found = {item.name: item.guest_addresses("ovn0") for item in await inventory.read(2)}
        assert found == {"node-1": ["10.99.0.7"], "hostile": []}
    finally:
        await api.close()
        await runner.cleanup()


async def test_states_are_read_some_at_a_time_and_of_what_nodes_are_on_alone() -> None:
    """Of a list that is too large: the answer may name any number of instances."""
    uuids = [f"{UUID[:-3]}{number:03}" for number in range(2 * MAX_READS + 50)]
    asked, under_way, most = list[str](), 0, 0

    async def get(operation: str, path: str, **query: str) -> Any:
        nonlocal under_way, most
        if operation == "ListInstances":
            if query["recursion"] == "2":
                raise CloudError("too large") from BodyTooLarge("too large")
            return [
                instance(name=f"n-{at}", config={"volatile.uuid": uuid}).record
                for at, uuid in enumerate(uuids)
            ]
        asked.append(path)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return {}

    inventory = Inventory([api_that(get)])
    await inventory.read(2)
    assert (len(asked), most) == (len(uuids), MAX_READS)
    asked.clear()
    await inventory.read(2, [node("n-7"), node("renamed", f"incus://k8s/{uuids[9].upper()}")])
    assert asked == ["/instances/n-7/state", "/instances/n-9/state"]


async def test_no_state_is_read_any_more_once_a_read_has_failed() -> None:
    """Each waits for its grant, and the next try reads them all again: there were ever more."""
    under_way = 0

    async def get(operation: str, path: str, **query: str) -> Any:
        nonlocal under_way
        if operation == "ListInstances" and query["recursion"] == "2":
            raise CloudError("too large") from BodyTooLarge("too large")
        if operation == "ListInstances":
            return [instance(name=f"n-{number}").record for number in range(3)]
        if path == "/instances/n-0/state":
            raise CloudError("no answer")
        under_way += 1
        await let_run()
        under_way -= 1
        return {}

    with pytest.raises(CloudError, match="no answer"):
        await Inventory([api_that(get)]).read(2)
    assert under_way == 0


def test_interfaces_without_number_keep_no_process_busy() -> None:
    """Each was compared with each NIC: 15,000 of both took half a minute."""
    macs = [f"10:66:6a:{at >> 16:02x}:{at >> 8 & 255:02x}:{at & 255:02x}" for at in range(15_000)]
    devices = {mac: {"type": "nic", "network": "ovn0", "hwaddr": mac} for mac in macs}
    network = {mac: nic(mac, (f"10.0.{at >> 8}.{at & 255}", "24")) for at, mac in enumerate(macs)}
    odd, began = instance(network, expanded_devices=devices), time.process_time()
    assert len(odd.guest_addresses("ovn0")) == len(macs)
    assert time.process_time() - began < 3.0


def test_of_two_instances_of_one_uuid_a_node_is_on_the_one_that_its_id_names() -> None:
    """One may be a copy that was restored elsewhere: the Node left its load balancers for it."""
    listed, asked = InstanceList(), node("node-1", f"incus://k8s/{UUID.upper()}")
    own, copy = instance(), replace(instance(name="copy"), project="other")
    for item in (copy, own):
        listed.add(item)
    assert instance_of(asked, listed) is own
    listed.add(instance(name="third"))
    assert instance_of(asked, listed) is None


async def test_a_copy_takes_no_place_of_an_instance_that_is_not_listed() -> None:
    """One that was restored elsewhere has the UUID, and its server may be the one that answers."""
    listed, asked = InstanceList(), node("node-1", f"incus://k8s/{UUID}")
    copy = replace(instance(name="copy"), project="other")
    listed.add(copy)
    find = IncusInstances([], cast(Inventory, None), NodeSection()).find
    assert (await find(asked, listed), instance_of(asked, listed)) == ([copy], copy), "it has moved"
    listed.failures.append("ListInstances: 500")
    assert (await find(asked, listed), instance_of(asked, listed)) == ([], None)
    own = instance()
    listed.add(own)
    assert (await find(asked, listed), instance_of(asked, listed)) == ([own], own)
    listed.failures.clear()
    assert await find(asked, listed) == [copy, own], "it is reported that there are two"


@pytest.mark.parametrize("hollow", [{}, [], {"name": "ovn0"}, {"name": "br0", "type": "bridge"}])
async def test_an_answer_that_does_not_say_what_a_network_is_decides_nothing(hollow: Any) -> None:
    """As what it is not, NICs of running instances on OVN were replugged at once."""
    answers = [hollow, {"name": "ovn0", "type": "ovn"}]

    async def get(operation: str, path: str, **query: str) -> Any:
        return answers.pop(0)

    item = replace(instance(), api=api_that(get))
    routes = IncusRoutes(cast(Inventory, None), "ovn0", RouteSection(), "kubernetes")
    with pytest.raises(CloudError, match="GetNetwork: the answer"):
        await routes._kind(item, item.nics("ovn0")[0])
    assert await routes._kind(item, item.nics("ovn0")[0]) == "ovn"


@pytest.mark.parametrize("hollow", [{}, {"name": "k8s"}, {"name": "k8s", "config": []}])
async def test_an_answer_that_does_not_say_whose_networks_a_project_has_decides_nothing(
    hollow: Any,
) -> None:
    """Instances of another network were backends, at addresses of others, until a restart."""
    answers = [hollow, {"name": "k8s", "config": {"features.networks": "true"}}]

    async def get(operation: str, path: str, **query: str) -> Any:
        return answers.pop(0)

    reader = BackendReader(api_that(get), cast(Any, None), BalancerSection(network="net"))
    with pytest.raises(CloudError, match="GetProject: the answer"):
        await reader._owner("k8s")
    assert await reader._owner("k8s") == "k8s"


async def test_an_answer_that_does_not_say_which_ranges_there_are_decides_nothing() -> None:
    """New Services were refused, or had no address of one family, until the next look."""
    hollow = {"name": "net"}, {"name": "default"}, {"name": "up"}
    uplink, project = {"network": "up"}, {"restricted": "false"}
    full = [{"name": "net", "config": uplink}, {"name": "default", "config": project}]
    ranges = {"name": "up", "config": {"ipv4.routes": "192.0.2.0/24"}}
    answers = [hollow[0], full[0], hollow[1], *full, hollow[2], *full, ranges]

    async def get(operation: str, path: str, **query: str) -> Any:
        return answers.pop(0)

    pools = Pools(api_that(get), BalancerSection(project="default", network="net"))
    for _ in hollow:
        with pytest.raises(CloudError, match="the answer has no configuration"):
            await pools.of_family(IPV4)
    assert await pools.of_family(IPV4) == [ip_network("192.0.2.0/24")]


async def test_marks_without_number_of_another_cluster_keep_no_process_busy() -> None:
    """It may write any text to an instance of its own, which is in our lists as well."""
    cidrs = [f"10.{at >> 8}.{at & 255}.0/24" for at in range(20_000)]
    device = {"type": "nic", "network": "ovn0", "ipv4.routes": ",".join(cidrs[:3_000])}
    routes = IncusRoutes(cast(Inventory, None), "ovn0", RouteSection(), "kubernetes")
    for count in (3_000, len(cidrs)):
        config = {"volatile.uuid": UUID, MARK: ",".join(f"other:{it}" for it in cidrs[:count])}
        odd = instance(config=config, expanded_devices={"eth0": device})
        began = time.process_time()
        assert not [*routes._routes_of(odd, None)]
        assert time.process_time() - began < 3.0

    async def get_tagged(*_: object) -> tuple[Json, str]:
        return odd.record, "tag"

    async def get(operation: str, path: str, **query: str) -> Any:
        raise AssertionError("nothing else is read")

    api = api_that(get)
    cast(Any, api).get_tagged = get_tagged
    with pytest.raises(Refused, match=f"{MARK} has more than {MAX_TEXT} characters"):
        await routes._change(replace(odd, api=api), ip_network("10.244.1.0/24"), is_wanted=True)


@pytest.mark.parametrize(
    ("name", "on_ovn", "named", "is_refused"),
    [
        pytest.param("hostile", STOPPED, {}, True, id="any-kubelets-word"),
        pytest.param("node-1", STOPPED, {}, False, id="its-name"),
        pytest.param("node-2", STOPPED, {NODE_KEY: "node-2"}, False, id="its-owners-word"),
        pytest.param("hostile", REPLUG, {}, False, id="it-can-be-taken-away"),
    ],
)
async def test_a_node_that_names_a_stopped_instance_gets_no_route_that_would_stay(
    name: str, on_ovn: str, named: Mapping[str, str], is_refused: bool
) -> None:
    """Once the instance runs, the next Node of that pod CIDR had none."""
    config, written = {"volatile.uuid": UUID, **named}, list[str]()
    devices = {"eth0": {"type": "nic", "network": "ovn0"}}
    off = instance(config=config, expanded_devices=devices, status_code=102)

    async def get_tagged(*_: object) -> tuple[Json, str]:
        return off.record, "tag"

    async def get(operation: str, path: str, **query: str) -> Any:
        return {"name": "ovn0", "type": "ovn"}

    async def call(operation: str, *_: Any) -> None:
        written.append(operation)

    listed, api = InstanceList(), api_that(get)
    cast(Any, api).get_tagged, cast(Any, api).call = get_tagged, call
    listed.add(replace(off, api=api))

    class Listed:
        async def read(self, recursion: int) -> InstanceList:
            return listed

    section = RouteSection(on_ovn=on_ovn)
    routes = IncusRoutes(cast(Inventory, Listed()), "ovn0", section, "kubernetes")
    with pytest.raises(Refused, match=NODE_KEY) if is_refused else nullcontext():
        await routes.create(node(name, f"incus://k8s/{UUID}"), "10.244.1.0/24")
    assert written == ([] if is_refused else ["UpdateInstance"])


@pytest.mark.parametrize("lacking", ["ipv4.routes", "security.acls", MARK])
async def test_what_one_answer_lacks_of_an_instance_is_not_taken_from_it(lacking: str) -> None:
    """Its NIC and the marks of all clusters are written back whole."""
    settings = {
        "type": "nic",
        "network": "ovn0",
        "ipv4.routes": "10.9.0.0/24",
        "security.acls": "a",
    }
    config = {"volatile.uuid": UUID, MARK: "other:10.9.0.0/24"}
    full = instance(config=config, expanded_devices={"eth0": settings}, status_code=102)
    records, written = [full.record], list[Json]()
    records += [
        instance(
            config={key: value for key, value in config.items() if key != lacking},
            expanded_devices={"eth0": {k: v for k, v in settings.items() if k != lacking}},
            status_code=102,
        ).record
    ]

    async def get_tagged(*_: object) -> tuple[Json, str]:
        return records.pop(), "tag"

    async def get(operation: str, path: str, **query: str) -> Any:
        return {"name": "ovn0", "type": "ovn"}

    async def call(*args: Any) -> None:
        written.append(args[4])

    api = api_that(get)
    for name, method in (("get_tagged", get_tagged), ("call", call)):
        setattr(cast(Any, api), name, method)
    routes = IncusRoutes(cast(Inventory, None), "ovn0", RouteSection(), "kubernetes")
    ours, listed = ip_network("10.244.1.0/24"), replace(full, api=api)
    with pytest.raises(RetryAfter):
        await routes._change(listed, ours, is_wanted=True)
    assert written == []
    await routes._change(listed, ours, is_wanted=True)
    routed = {"eth0": {**settings, "ipv4.routes": "10.9.0.0/24,10.244.1.0/24"}}
    marked = {MARK: "kubernetes:10.244.1.0/24,other:10.9.0.0/24"}
    assert written == [{"config": marked, "devices": routed}]


@pytest.mark.virtual_time
async def test_a_guest_that_takes_its_addresses_away_is_not_waited_for_for_ever() -> None:
    """No other instance would get routes: root in one decides what it shows."""
    section = RouteSection(on_ovn=REPLUG)
    routes = IncusRoutes(cast(Inventory, None), "ovn0", section, "kubernetes")
    marked = {"volatile.uuid": UUID, MARK: "kubernetes:10.244.1.0/24"}
    hidden = instance({}, config=marked)
    for _ in range(3):
        with pytest.raises(RetryAfter):
            routes._check_is_back(hidden)
        await asyncio.sleep(BACK_WAIT / 3)
    routes._check_is_back(hidden)


@pytest.mark.virtual_time
async def test_guests_that_take_turns_in_hiding_their_addresses_are_waited_for_once() -> None:
    """One is without them whenever others are looked at."""
    section = RouteSection(on_ovn=REPLUG)
    routes = IncusRoutes(cast(Inventory, None), "ovn0", section, "kubernetes")
    marks = {MARK: "kubernetes:10.244.1.0/24"}
    uuids = UUID, f"{UUID[:-1]}{'1' if UUID[-1] == '0' else '0'}"
    refused = 0
    for turn in range(20):
        guests = [
            instance(
                {},
                config={"volatile.uuid": uuid, **marks},
                status_code=103 if at == turn % 2 else 102,
            )
            for at, uuid in enumerate(uuids)
        ]
        try:
            for guest in guests:
                routes._check_is_back(guest)
        except RetryAfter:
            refused += 1
        await asyncio.sleep(BACK_WAIT / 3)
    assert refused <= 6


@pytest.mark.virtual_time
async def test_a_guest_that_hides_after_each_change_of_its_routes_is_waited_for_once() -> None:
    """Its kubelet registers again with another pod CIDR, for which it shows them for a moment."""
    marks = {MARK: "kubernetes:10.244.1.0/24"}
    listed, refused = InstanceList(), 0

    class Listed:
        async def read(self, recursion: int) -> InstanceList:
            return listed

    async def write(*_: object) -> None:
        return

    section = RouteSection(on_ovn=REPLUG)
    routes = IncusRoutes(cast(Inventory, Listed()), "ovn0", section, "kubernetes")
    cast(Any, routes)._write = write
    given = {"volatile.eth0.hwaddr": MAC, "volatile.eth0.last_state.ip_addresses": "10.99.0.2"}
    address = {"family": "inet", "address": "10.99.0.2", "netmask": "24", "scope": "global"}
    network = {"eth0": {"hwaddr": MAC, "addresses": [address]}}
    for _ in range(8):
        shown = instance(network, config={"volatile.uuid": UUID, **given, **marks})
        listed.by_uuid[UUID] = [shown]
        await routes._replug(shown, shown.nics("ovn0")[0], {}, "")
        for _ in range(3):
            try:
                routes._check_is_back(instance({}, config={"volatile.uuid": UUID, **marks}))
            except RetryAfter:
                refused += 1
            await asyncio.sleep(BACK_WAIT / 3)
    assert refused <= 3


async def test_a_node_that_states_anothers_uuid_has_no_route_of_it_and_takes_none() -> None:
    """Two forms of provider ID are two machines for the worker: it sees no one contest any."""
    devices = {"eth0": {"type": "nic", "network": "ovn0", "ipv4.routes": "10.244.1.0/24"}}
    config = {"volatile.uuid": UUID, MARK: "kubernetes:10.244.1.0/24"}
    listed = InstanceList()
    listed.add(instance(config=config, expanded_devices=devices))

    class Listed:
        async def read(self, recursion: int) -> InstanceList:
            return listed

    routes = IncusRoutes(cast(Inventory, Listed()), "ovn0", RouteSection(), "kubernetes")
    owner, hostile = node("node-1", "lxc:///node-1"), node("hostile", f"incus://k8s/{UUID}")
    for nodes in ([owner, hostile], [hostile, owner]):
        assert [route.node for route in await routes.list(nodes)] == ["node-1"]
        with pytest.raises(Refused, match="instance node-1 is node node-1"):
            await routes.create(hostile, "10.244.2.0/24")


async def test_an_instance_of_the_name_in_another_project_takes_no_route() -> None:
    """Each pass freed the Node's network from its own route, as one to no Node."""
    devices = {"eth0": {"type": "nic", "network": "ovn0", "ipv4.routes": "10.244.1.0/24"}}
    config = {"volatile.uuid": UUID, MARK: "kubernetes:10.244.1.0/24"}
    listed, other = InstanceList(), {"volatile.uuid": f"{UUID[:-1]}0"}
    listed.add(instance(config=config, expanded_devices=devices))
    listed.add(replace(instance(config=other), project="other"))

    class Listed:
        async def read(self, recursion: int) -> InstanceList:
            return listed

        async def incomplete_reasons(self) -> list[str]:
            return []

    routes = IncusRoutes(cast(Inventory, Listed()), "ovn0", RouteSection(), "kubernetes")
    owner = node("node-1", "lxc:///node-1")
    assert [(item.node, item.cidr) for item in await routes.list([owner])] == [
        ("node-1", "10.244.1.0/24")
    ]
