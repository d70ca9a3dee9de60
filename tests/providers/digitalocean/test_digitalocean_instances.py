"""Nodes and droplets: what is found, what is gone, and what nothing is said about."""

from pathlib import Path
from typing import Any

import pytest

from ccm.cloud.testkit.harness import node
from ccm.decide.budget import READ_PAUSE
from ccm.decide.claims import rightful_node
from ccm.errors import CloudError
from ccm.model.cloud import Answer, Gone, Instance, PowerState, Unknown
from ccm.model.objects import Json
from ccm.providers.digitalocean.api import API, PAGE, quotas
from ccm.providers.digitalocean.config import GlobalSection
from tests.labs.digitalocean.records import networks
from tests.labs.digitalocean.server import OTHER_TOKEN, VPC, DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.conftest import Started, host


def addresses(answer: Answer) -> list[tuple[str, str]]:
    assert isinstance(answer, Instance)
    return [(str(one.type), one.address) for one in answer.addresses]


async def test_a_node_without_an_id_is_the_droplet_of_its_name(
    do: DigitalOcean, cloud: Started
) -> None:
    """DO1: the kubelet writes small letters."""
    made = do.add_droplet("Worker-1")
    found = await cloud.describe_one(node("worker-1"))
    assert isinstance(found, Instance)
    assert found.provider_id == f"digitalocean://{made['id']}"
    assert (found.type, found.region, found.zone) == ("s-2vcpu-2gb", "nyc3", "")
    await cloud.describe_one(node("worker-1"))
    types = [query.get("type", "") for _, _, query, _ in do.requests]
    assert types == ["", "gpus", ""], "there are none with GPUs"


async def test_two_droplets_of_one_name_are_none(do: DigitalOcean, cloud: Started) -> None:
    """DO2: both are named; only one of them may be in the cluster's VPC."""
    one, other = do.add_droplet("worker"), do.add_droplet("worker", vpc_uuid="another")
    found = await cloud.describe_one(node("worker"))
    assert isinstance(found, Unknown)
    assert str(one["id"]) in found.why
    assert str(other["id"]) in found.why
    in_vpc = await Started(config_of(do, f"vpc-id = {VPC}")).start()
    answer = await in_vpc.describe_one(node("worker"))
    assert isinstance(answer, Instance)
    assert answer.provider_id == f"digitalocean://{one['id']}"


async def test_a_node_called_like_an_address_is_found_by_it(
    do: DigitalOcean, cloud: Started
) -> None:
    """DO3."""
    do.add_droplet("other")
    made = do.add_droplet("worker", networks=networks("10.0.0.7", "192.0.2.7"))
    for name in ("10.0.0.7", "192.0.2.7"):
        found = await cloud.describe_one(node(name))
        assert isinstance(found, Instance)
        assert found.provider_id == f"digitalocean://{made['id']}"
        assert rightful_node([node("another"), node(name)], found) == name, (
            "another Node claims it, too"
        )


@pytest.mark.parametrize("odd", ["aws:///i-1", "digitalocean://web", "digitalocean://"])
async def test_a_wrong_id_leaves_the_others_alone(
    do: DigitalOcean, cloud: Started, odd: str
) -> None:
    """DO4."""
    made = do.add_droplet("worker")
    answers = await cloud.describe(node("odd", odd), host(made))
    assert isinstance(answers["odd"], Unknown)
    assert odd in answers["odd"].why
    assert isinstance(answers["worker"], Instance)


async def test_a_droplet_that_is_destroyed_is_gone_by_two_reads(
    do: DigitalOcean, cloud: Started
) -> None:
    """DO5: the list lacks it, and its own number is 404."""
    kept, ended = host(do.add_droplet("kept")), do.add_droplet("ended")
    del do.droplets[ended["id"]]
    answers = await cloud.describe(kept, host(ended))
    assert isinstance(answers["ended"], Gone)
    assert do.requests[-1][1] == f"/v2/droplets/{ended['id']}"


async def test_a_token_of_another_team_makes_no_one_gone(
    do: DigitalOcean, cloud: Started, tmp_path: Path
) -> None:
    """DO6: every droplet is 404 to it, from the start or from some time on."""
    nodes = [host(do.add_droplet(f"worker-{number}")) for number in range(3)]
    file = tmp_path / "token"
    file.write_text(OTHER_TOKEN)
    config = config_of(do).replace("token = dop_v1_cluster", f"token-file = {file}")
    foreign = await Started(config).start()

    async def check_nobody_is_gone() -> None:
        for answer in (await foreign.describe(*nodes)).values():
            assert isinstance(answer, Unknown)
            assert "another team" in answer.why

    await check_nobody_is_gone()
    file.write_text("dop_v1_cluster")
    assert all(isinstance(one, Instance) for one in (await foreign.describe(*nodes)).values())
    file.write_text(OTHER_TOKEN)
    await check_nobody_is_gone()


async def test_the_last_droplet_goes_only_where_the_vpc_tells_the_team(
    do: DigitalOcean, cloud: Started
) -> None:
    """DO6: without a witness nothing is known."""
    only = do.add_droplet("only")
    assert isinstance(await cloud.describe_one(host(only)), Instance)
    with_vpc = await Started(config_of(do, f"vpc-id = {VPC}")).start()
    del do.droplets[only["id"]]
    assert isinstance(await cloud.describe_one(host(only)), Unknown)
    assert isinstance(await with_vpc.describe_one(host(only)), Gone)


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 401, "text": '{"id": "unauthorized", "message": "no"}'},
        {"status": 403, "text": '{"id": "forbidden", "message": "no"}'},
        {"status": 404, "text": "<html>not here</html>"},
        {"status": 429},
        {"status": 500},
        {"status": 200, "text": "<html>a proxy</html>"},
        {"status": 200, "text": "{}"},
        {"status": 200, "text": '{"droplets": null}'},
    ],
)
async def test_a_failure_makes_no_one_gone(
    do: DigitalOcean, cloud: Started, fault: dict[str, Any]
) -> None:
    """DO7."""
    nodes = [host(do.add_droplet(f"worker-{number}")) for number in range(2)]
    await cloud.describe(*nodes)
    do.fault = fault
    with pytest.raises(CloudError):
        await cloud.describe(*nodes)


@pytest.mark.parametrize(
    ("status", "power"),
    [
        ("new", PowerState.RUNNING),
        ("active", PowerState.RUNNING),
        ("off", PowerState.STOPPED),
        ("archive", PowerState.STOPPED),
    ],
)
async def test_the_state_of_a_droplet_is_its_power(
    do: DigitalOcean, cloud: Started, status: str, power: PowerState
) -> None:
    """DO8."""
    found = await cloud.describe_one(host(do.add_droplet("worker", status=status)))
    assert isinstance(found, Instance)
    assert found.power is power


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        (
            networks("10.0.0.7", "192.0.2.7"),
            [("InternalIP", "10.0.0.7"), ("ExternalIP", "192.0.2.7")],
        ),
        (networks("", "192.0.2.7"), [("ExternalIP", "192.0.2.7")]),
        (networks("10.0.0.7"), [("InternalIP", "10.0.0.7")]),
        (
            networks("10.0.0.7", "192.0.2.7", "2604:a880::7"),
            [
                ("InternalIP", "10.0.0.7"),
                ("ExternalIP", "192.0.2.7"),
                ("ExternalIP", "2604:a880::7"),
            ],
        ),
    ],
    ids=["usual", "DO9 no private one", "DO10 private alone", "DO11 IPv6"],
)
async def test_addresses_are_the_networks_of_the_droplet(
    do: DigitalOcean, cloud: Started, of: Json, wanted: list[tuple[str, str]]
) -> None:
    """DO9, DO10, DO11, DO12: reserved addresses are no networks, and are not shown."""
    found = await cloud.describe_one(host(do.add_droplet("worker", networks=of)))
    assert addresses(found) == [("Hostname", "worker"), *wanted]


async def test_a_droplet_without_an_address_is_asked_about_again(
    do: DigitalOcean, cloud: Started
) -> None:
    made = do.add_droplet("worker", status="new", networks=networks())
    found = await cloud.describe_one(node("worker", f"digitalocean://{made['id']}"))
    assert isinstance(found, Unknown)
    assert "no address yet" in found.why


async def test_nodes_cost_a_request_for_two_hundred_droplets(
    do: DigitalOcean, cloud: Started
) -> None:
    """DO13: 500 droplets, 50 Nodes, 3 calls."""
    made = [do.add_droplet(f"droplet-{number}") for number in range(500)]
    nodes = [host(one) for one in made[::10]]
    answers = await cloud.describe(*nodes)
    assert all(isinstance(one, Instance) for one in answers.values())
    assert len(do.requests) == 3


async def test_a_thousand_nodes_cost_five_requests(do: DigitalOcean, cloud: Started) -> None:
    """And one, once, to know that there are no GPUs."""
    names = [do.add_droplet(f"worker-{number}")["name"] for number in range(1000)]
    for cost in (6, 5):
        do.requests.clear()
        answers = await cloud.describe(*map(node, names))
        assert all(isinstance(one, Instance) for one in answers.values())
        assert len(do.requests) == cost


async def test_a_list_that_shrinks_while_it_is_read_makes_no_one_gone(
    do: DigitalOcean, cloud: Started
) -> None:
    """DO14: what comes after the one that went moves up, and one falls between two pages."""
    made = [do.add_droplet(f"droplet-{300 if number == 201 else number}") for number in range(401)]
    nodes = [host(one) for one in (made[200], made[300])]

    def shrink(kind: str, page: int) -> None:
        if kind == "droplets" and page == 1:
            do.on_page = None
            del do.droplets[next(iter(do.droplets))]

    do.on_page = shrink
    listed = [*do.droplets.values()]
    answers = await cloud.describe(*nodes)
    assert len(listed) == 401
    assert not any(isinstance(one, Gone) for one in answers.values())
    assert isinstance(answers["droplet-300"], Instance)
    do.on_page = shrink
    twin = await cloud.describe_one(node("droplet-300"))
    assert isinstance(twin, Unknown), "the other one of its name has fallen"


async def test_a_droplet_with_gpus_is_in_a_list_of_its_own(
    do: DigitalOcean, cloud: Started
) -> None:
    made = do.add_droplet("trainer", is_gpu=True)
    assert isinstance(await cloud.describe_one(host(made)), Instance)
    assert isinstance(await cloud.describe_one(node("trainer")), Instance)


def test_a_kubelet_that_changes_its_node_for_ever_leaves_most_calls_to_others() -> None:
    """The node and the Service worker read for it, each time all droplets, before all else."""
    calls_of_a_read, readers = 1000 / PAGE, 2
    of_all = quotas(GlobalSection())[API].per_second
    assert readers * calls_of_a_read / READ_PAUSE < of_all / 3
