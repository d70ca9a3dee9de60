"""Records of OpenStack's services, and what they say about Nodes, volumes and endpoints."""

import re
import time
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest

from ccm.cloud.lookup import MAX_PARTS
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node, volume
from ccm.errors import CloudError, NoRoom, Refused, Unanswered
from ccm.http import HttpResponse
from ccm.model.cloud import Gone, Instance, PowerState, Unknown, VolumePlace
from ccm.model.objects import PROVIDED_NODE_IP, Json
from ccm.model.volume import PLACEHOLDER
from ccm.providers.openstack import ids
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.config import NetworkingSection, OpenStackConfig
from ccm.providers.openstack.credentials import GlobalSection
from ccm.providers.openstack.instances import (
    MAX_FILTER,
    OpenStackInstances,
    names_filters,
    read_server,
)
from ccm.providers.openstack.keystone import (
    MAX_ENDPOINTS,
    MAX_SERVICES,
    Endpoint,
    Token,
    read_token,
)
from ccm.providers.openstack.volumes import (
    CSI_DRIVER,
    LEGACY_SOURCE,
    OpenStackVolumes,
    read_place,
)
from workers.node.plan import CannotPlan, desired_addresses

EVERY_NETWORK = NetworkingSection()
ID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    ("provider_id", "server", "region"),
    [
        (f"openstack:///{ID}", ID, ""),
        (f"openstack://Here/{ID}", ID, "Here"),
        (f"/{ID}", ID, ""),
        (f"openstack:///{ID.upper()}", ID, ""),
        ("openstack:///web-1", "", ""),
        (f"openstack:///../{ID}", "", ""),
        (f"aws:///{ID}", "", ""),
        ("", "", ""),
    ],
)
def test_a_provider_id_names_a_server(provider_id: str, server: str, region: str) -> None:
    """OS21."""
    assert (ids.server_id_of(provider_id), ids.region_of(provider_id)) == (server, region)
    is_foreign = not ids.PROVIDER_IDS.fullmatch(provider_id)
    assert is_foreign == (not provider_id.startswith(("openstack:", "/")))


def test_a_server_is_of_this_region_unless_its_provider_id_says_otherwise() -> None:
    for region, provider_id, server in (
        ("Here", f"openstack:///{ID}", ID),
        ("Here", f"openstack://Here/{ID}", ID),
        ("Here", f"openstack://There/{ID}", ""),
        ("", f"openstack://There/{ID}", ID),
        ("Here", "", ""),
    ):
        assert ids.server_in(region, provider_id) == server


def fixed(ip: str, kind: str = "fixed") -> Json:
    return {"addr": ip, "version": 6 if ":" in ip else 4, "OS-EXT-IPS:type": kind}


def server(**changes: Any) -> Json:
    """A server in two networks with an address from outside."""
    usual = {
        "id": ID,
        "name": "node-1",
        "status": "ACTIVE",
        "OS-EXT-AZ:availability_zone": "zone-a",
        "flavor": {"original_name": "m1.small"},
        "addresses": {
            "nodes": [fixed("10.0.0.5"), fixed("fd00::5"), fixed("203.0.113.9", "floating")],
            "backup": [fixed("10.9.0.5")],
        },
        "accessIPv4": "",
        "accessIPv6": "",
        "metadata": {},
    }
    return usual | changes


def described(networking: NetworkingSection = EVERY_NETWORK, **changes: Any) -> Instance:
    answer = read_server(server(**changes), networking, "RegionOne")
    assert isinstance(answer, Instance)
    return answer


def addresses(networking: NetworkingSection, **changes: Any) -> list[str]:
    return [f"{a.type} {a.address}" for a in described(networking, **changes).addresses]


ALL = ["InternalIP 10.9.0.5", "InternalIP 10.0.0.5", "InternalIP fd00::5", "ExternalIP 203.0.113.9"]


def test_a_server_is_what_its_record_says() -> None:
    made = described()
    assert (made.provider_id, made.type, made.zone) == (ID, "m1.small", "zone-a")
    assert (made.region, made.power) == ("RegionOne", PowerState.RUNNING)


@pytest.mark.parametrize(
    ("networking", "changes", "wanted"),
    [
        ({}, {}, ALL),
        ({"internal_network_name": ("nodes",)}, {}, ALL[1:]),
        ({"public_network_name": ("backup",)}, {}, ["ExternalIP 10.9.0.5", *ALL[1:]]),
        ({"ipv6_support_disabled": True}, {}, [*ALL[:2], ALL[3]]),
        (
            {"address_sort_order": "fd00::/8, nonsense, 10.0.0.0/16"},
            {},
            [ALL[2], ALL[1], ALL[0], ALL[3]],
        ),
        ({}, {"accessIPv4": "203.0.113.9"}, ALL),
        ({}, {"accessIPv6": "2001:DB8::0"}, [*ALL, "ExternalIP 2001:db8::"]),
        ({"ipv6_support_disabled": True}, {"accessIPv6": "2001:db8::"}, [*ALL[:2], ALL[3]]),
        (
            {"address_sort_order": "203.0.113.0/24"},
            {"metadata": {"hostname": "web"}},
            [ALL[3], *ALL[:3], "Hostname web"],
        ),
    ],
)
def test_addresses_come_in_an_order_that_does_not_change(
    networking: dict[str, Any], changes: Json, wanted: list[str]
) -> None:
    """OS23, OS24, OS25, OS26, OS27, OS28, OS30."""
    section = NetworkingSection(**networking)
    assert addresses(section, **changes) == wanted
    other_way = dict(reversed(server()["addresses"].items()))
    assert addresses(section, **changes, addresses=other_way) == wanted


@pytest.mark.parametrize(
    ("provided", "wanted"),
    [
        ("10.0.0.5", ["InternalIP 10.0.0.5", "ExternalIP 203.0.113.9"]),
        ("fd00::5,10.0.0.5", ["InternalIP fd00::5", "InternalIP 10.0.0.5", ALL[3]]),
    ],
)
def test_the_kubelets_address_is_the_one_of_its_type(provided: str, wanted: list[str]) -> None:
    """OS31: one that the server lacks is an error on the Node."""
    asked = node("node-1")
    asked.raw["metadata"]["annotations"] = {PROVIDED_NODE_IP: provided}
    listed = desired_addresses(asked, described().addresses)
    found = [f"{one['type']} {one['address']}" for one in listed if one["type"] != "Hostname"]
    assert found == wanted
    asked.raw["metadata"]["annotations"] = {PROVIDED_NODE_IP: "10.0.0.99"}
    with pytest.raises(CannotPlan, match=r"10\.0\.0\.99"):
        desired_addresses(asked, described().addresses)


@pytest.mark.parametrize(
    ("status", "power"),
    [
        ("ACTIVE", PowerState.RUNNING),
        ("SHUTOFF", PowerState.STOPPED),
        ("SHELVED", PowerState.STOPPED),
        ("SHELVED_OFFLOADED", PowerState.STOPPED),
        ("PAUSED", PowerState.RUNNING),
        ("SUSPENDED", PowerState.RUNNING),
        ("ERROR", PowerState.RUNNING),
        ("REBUILD", PowerState.RUNNING),
        ("VERIFY_RESIZE", PowerState.RUNNING),
    ],
)
def test_only_a_server_that_is_off_is_stopped(status: str, power: PowerState) -> None:
    """OS11, OS12, OS13."""
    assert described(status=status).power is power


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"status": "DELETED"}, Gone),
        ({"status": "SOFT_DELETED"}, Gone),
        ({"status": "BUILD"}, Unknown),
        ({"status": ""}, Unknown),
        ({"id": "web-1"}, Unknown),
        ({"addresses": None}, Unknown),
        ({"addresses": {"nodes": [fixed("10.0.0")]}}, Unknown),
    ],
)
def test_an_invalid_answer_is_reported_as_invalid(changes: Json, kind: type) -> None:
    """OS14, OS33."""
    assert isinstance(read_server(server(**changes), NetworkingSection(), ""), kind)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("m1.small", "m1.small"),
        ("big one/4", "big-one-4"),
        ("x" * 70, "x" * 63),
        ("ü", ""),
        ("", ""),
    ],
)
def test_flavors_and_zones_become_labels(text: str, label: str) -> None:
    """OS18, OS19, OS20: also of a flavor that is gone, as its name is in the server."""
    named: Json = {"flavor": {"original_name": text}, "OS-EXT-AZ:availability_zone": text}
    made = described(**named)
    assert (made.type, made.zone) == (label, label)


def test_a_filter_names_servers_exactly_and_never_grows_too_long() -> None:
    assert list(names_filters(["a", "b.c"])) == ["^(a$)?(b\\.c$)?$"]
    filters = list(names_filters([f"{'x' * 240}.{number}" for number in range(100)]))
    assert max(map(len, filters)) < 7000
    assert sum(one.count("(") for one in filters) == 100


def test_names_that_are_parts_of_others_make_no_filter_slow() -> None:
    """Kubelets had each server's name tried in millions of ways: no server was listed in time."""
    prefix = "workload-cluster-abcdefghijk-"
    places = range(len(prefix) * 3)
    parts = [prefix[at // 3 : at // 3 + at % 3 + 1] for at in places]
    named = [item for item in dict.fromkeys(parts) if not {item[0], item[-1]} & {"-"}]
    took = []
    for names in ([f"node-{number}" for number in range(len(named))], named):
        [expression] = map(re.compile, names_filters(names))
        began = time.thread_time()
        for _ in range(20):
            assert not expression.search(f"{prefix}0")
        took.append(time.thread_time() - began)
    assert took[1] < 20 * took[0]


async def test_names_of_any_length_cost_few_requests() -> None:
    """Kubelets that register under ever new ones had who joins with them wait for a dozen."""
    asked: list[Json] = []

    async def pages(*_: str, **query: str) -> list[Json]:
        asked.append(query)
        return [server(name="node-1")]

    api: Any = SimpleNamespace(region="", pages=pages)
    instances = OpenStackInstances(api, EVERY_NETWORK, is_regional=False)
    long = [node(f"{'a.' * 124}{number}") for number in range(10, 109)]
    answers = await instances.describe([node("node-1"), *long])
    assert isinstance(answers["node-1"], Instance)
    assert asked == [{}]


def test_long_names_beside_short_ones_make_no_filter_too_long() -> None:
    """A dozen kubelets had all others' machines asked for in a request that no server takes."""
    long = [f"{'a.' * 124}{number}" for number in range(20)]
    filters = list(names_filters([*long, *(f"node-{number}" for number in range(80))]))
    assert max(len(quote(one)) for one in filters) < MAX_FILTER + 10
    assert sum(one.count("(") for one in filters) == 100


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        ({"availability_zone": "zone a", "status": "in-use"}, VolumePlace(("zone-a",), "Here")),
        ({"availability_zone": "a", "status": "deleting"}, Gone("volume v is deleting")),
        ({"status": "available"}, Unknown("Cinder's record lacks its zone")),
    ],
)
def test_a_volume_is_where_its_record_says(record: Json, answer: object) -> None:
    assert read_place({"id": "v", **record}, "Here") == answer


async def test_what_is_no_volume_of_cinders_is_not_asked_about() -> None:
    volumes = OpenStackVolumes(cast(OpenStackApi, None))
    asked: dict[str, Json] = {
        "new": {"csi": {"driver": CSI_DRIVER, "volumeHandle": PLACEHOLDER}},
        "odd": {"csi": {"driver": CSI_DRIVER, "volumeHandle": f"../{ID}"}},
        "none": {LEGACY_SOURCE: {}},
    }
    answers = await volumes.describe([volume(name, spec) for name, spec in asked.items()])
    assert [type(answers[name]) for name in asked] == [Unknown, Gone, Gone]


def token(*catalog: Json) -> Token:
    return Token("t", 3600, "p", catalog)


def entry(type_: str, url: str, region: str = "Here", interface: str = "public") -> Json:
    endpoint = {"interface": interface, "region_id": region, "url": url}
    return {"type": type_, "endpoints": [endpoint]}


@pytest.mark.parametrize(
    ("service", "type_", "url", "wanted"),
    [
        ("network", "network", "http://n:9696/", "http://n:9696/v2.0"),
        ("network", "network", "http://n/networking/v2.0", "http://n/networking/v2.0"),
        ("load-balancer", "load-balancer", "http://o", "http://o/v2.0"),
        ("compute", "compute", "http://n/v2.1/p", "http://n/v2.1/p"),
        ("volume", "volumev3", "http://c/v3/p", "http://c/v3/p"),
        ("volume", "block-storage", "http://c", "http://c/v3/p"),
    ],
)
def test_an_endpoint_has_its_version(service: str, type_: str, url: str, wanted: str) -> None:
    assert token(entry(type_, url)).endpoint(service, "Here", "public") == Endpoint(wanted, "Here")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "unix:///run/containerd.sock",
        "file:///etc",
        "http://[::1",
        "http://a:b@c/",
        "http://c/?d",
    ],
)
def test_what_is_no_url_of_a_host_gets_no_token(url: str) -> None:
    with pytest.raises(CloudError, match="no usable URL of compute"):
        token(entry("compute", url)).endpoint("compute", "Here", "public")


def test_an_endpoint_is_of_the_region_and_interface_that_are_configured() -> None:
    """OS100."""
    catalog = token(
        entry("compute", "http://a/v2.1", "There"),
        entry("compute", "http://b/v2.1", interface="internal"),
        entry("compute", "http://c/v2.1"),
    )
    assert catalog.endpoint("compute", "Here", "public").url == "http://c/v2.1"
    assert catalog.endpoint("compute", "", "public").region == "There"
    with pytest.raises(Refused, match="no public endpoint of load-balancer in region Here"):
        catalog.endpoint("load-balancer", "Here", "public")


TIMES = {"expires_at": "2026-01-01T01:00:00Z", "issued_at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("services", [1, 2 * MAX_SERVICES])
def test_a_catalogue_without_number_costs_no_request_its_time(services: int) -> None:
    """A million endpoints took half a second of each request, for as long as the token was used."""
    other = entry("compute", "http://a", interface="internal")
    other["endpoints"] *= 2 * MAX_ENDPOINTS
    known = {**TIMES, "catalog": [other] * services, "project": {"id": "p"}}
    found = read_token("t", {"token": known})
    assert len(found.catalog) <= MAX_SERVICES
    assert all(len(item["endpoints"]) <= MAX_ENDPOINTS for item in found.catalog)


NAIVE = {"expires_at": "2026-01-01T00:00:00", "issued_at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    "answer", [{}, {"token": {}}, {"token": {"expires_at": "soon"}}, {"token": NAIVE}]
)
def test_an_answer_that_is_no_token_is_reported(answer: Json) -> None:
    with pytest.raises(CloudError):
        read_token("t", answer)


@pytest.mark.parametrize("project", [None, {}, {"name": "p"}, {"id": ""}])
def test_a_token_without_its_project_is_none(project: object) -> None:
    """Lists of our project alone would all be empty."""
    known = {**TIMES, "catalog": [entry("compute", "http://n")], "project": {"id": "p"}}
    assert read_token("t", {"token": known}).project_id == "p"
    with pytest.raises(CloudError, match="no project"):
        read_token("t", {"token": {**known, "project": project}})


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (409, b'{"NeutronError": {"type": "OverQuota", "message": "full"}}', NoRoom, "full"),
        (403, b'{"faultcode": "Client", "faultstring": "Quota has been met"}', NoRoom, "met"),
        (409, b'{"NeutronError": {"type": "RoutesExhausted", "message": "30"}}', NoRoom, "30"),
        (400, b'{"badRequest": {"code": 400, "message": "no"}}', Refused, "no"),
        (502, b"<html>", Unanswered, "502"),
        (302, b"", CloudError, "302"),
    ],
)
def test_an_error_says_what_the_service_said(
    status: int, body: bytes, kind: type[CloudError], words: str
) -> None:
    """OS90."""
    config = OpenStackConfig(GlobalSection(auth_url="http://127.0.0.1:9"))
    api = OpenStackApi(config, lambda: config, KitGate(1.0), "test")
    with pytest.raises(CloudError, match=words) as raised:
        api.read("GetThing", HttpResponse(status, "", {}, body))
    assert type(raised.value) is kind


def test_of_an_error_with_keys_without_number_some_are_looked_at() -> None:
    """One and a half million take seconds of one turn."""
    config = OpenStackConfig(GlobalSection(auth_url="http://127.0.0.1:9"))
    api = OpenStackApi(config, lambda: config, KitGate(1.0), "test")
    content: Json = {f"{number}": 1 for number in range(2 * MAX_PARTS)}
    assert not api.error_text(
        content | {"badRequest": {"message": "no"}}, HttpResponse(400, "", {})
    )
    assert (
        api.error_text({"badRequest": {"message": "no"}} | content, HttpResponse(400, "", {}))
        == "no"
    )
