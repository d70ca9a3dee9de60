"""Load balancers: when they are made, changed and deleted, and what it costs."""

import pytest

from ccm.cloud.gate import invoke
from ccm.errors import (
    CloudError,
    Denied,
    NoRoom,
    RetryAfter,
    Throttled,
)
from ccm.model.cloud import Ingress
from ccm.model.objects import Json
from ccm.providers.digitalocean.ids import SERVICE_TAG
from ccm.providers.digitalocean.lb.load_balancers import DigitalOceanLoadBalancers
from tests.labs.digitalocean.server import VPC, DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.balancers import NAME, only, web
from tests.providers.digitalocean.conftest import Started, host


async def test_an_address_is_there_once_it_is_active(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO19, DO20: made once, looked at until then."""
    assert cloud.load_balancers
    do.reads_until_active = 3
    for _ in range(3):
        with pytest.raises(RetryAfter) as wait:
            await invoke(cloud.load_balancers.ensure, web(), [host(worker)])
        assert wait.value.seconds == 15.0
    found = await cloud.ensure(web(), host(worker))
    assert found.ingress == (Ingress(only(do)["ip"]),)
    (body,) = do.bodies("POST", "load_balancers")
    assert (body["type"], body["network"], body["network_stack"]) == (
        "REGIONAL_NETWORK",
        "EXTERNAL",
        "IPV4",
    )
    assert (body["name"], body["region"], body["vpc_uuid"]) == (NAME, "nyc3", VPC)
    assert body["tags"] == [f"{SERVICE_TAG}{web().uid}"]
    assert body["droplet_ids"] == [worker["id"]]


async def test_a_failed_one_is_reported_and_not_made_again(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO23."""
    await cloud.ensure(web(), host(worker))
    only(do)["status"] = "errored"
    before = len(do.writes())
    with pytest.raises(CloudError, match="is errored: if it stays so, delete it"):
        await cloud.ensure(web(), host(worker))
    assert len(do.writes()) == before
    do.balancers.clear()
    assert (await cloud.ensure(web(), host(worker))).ingress


async def test_an_unchanged_service_writes_nothing(do: DigitalOcean, worker: Json) -> None:
    """DO43: at each resync, and after each start; a look costs a call."""
    first = await Started(config_of(do)).start()
    await first.ensure(web(), host(worker))
    start = len(do.writes())
    for _ in range(3):
        restarted = await Started(config_of(do)).start()
        before = len(do.requests)
        await restarted.ensure(web(), host(worker))
        await restarted.ensure(web(), host(worker))
        assert len(do.requests) == before + 2
    assert len(do.writes()) == start


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 429, "headers": {"Retry-After": "3"}}, Throttled),
        ({"status": 500}, CloudError),
        ({"status": 403}, Denied),
    ],
)
async def test_a_deletion_is_tried_until_it_is_done(
    do: DigitalOcean, cloud: Started, worker: Json, fault: Json, kind: type[CloudError]
) -> None:
    """DO48: 404 is success."""
    await cloud.ensure(web(), host(worker))
    assert cloud.load_balancers
    do.fault = fault
    with pytest.raises(kind):
        await invoke(cloud.load_balancers.delete, web())
    do.fault = {}
    await invoke(cloud.load_balancers.delete, web())
    assert not do.balancers
    await invoke(cloud.load_balancers.delete, web())


async def test_one_that_is_being_made_is_deleted_after_that(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO49: as far as the server is right in refusing it before."""
    do.reads_until_active = 3
    assert cloud.load_balancers
    with pytest.raises(RetryAfter):
        await invoke(cloud.load_balancers.ensure, web(), [host(worker)])
    with pytest.raises(RetryAfter, match="processes previous actions"):
        await invoke(cloud.load_balancers.delete, web())
    only(do)["status"] = "active"
    await invoke(cloud.load_balancers.delete, web())
    assert not do.balancers


async def test_one_deleted_by_hand_comes_back(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    first = await cloud.ensure(web(), host(worker))
    do.balancers.clear()
    again = await cloud.ensure(web(ip=first.ingress[0].ip), host(worker))
    assert again.ingress != first.ingress


async def test_a_filter_by_name_may_count_all(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """Nobody says what the total of such a list is, so nothing rests on it."""
    await cloud.ensure(web(), host(worker))
    do.add_balancer(name="other")
    do.counts_all = True
    restarted = await Started(config_of(do)).start()
    assert (await restarted.ensure(web(), host(worker))).ingress
    assert restarted.operations.count("ListLoadBalancers") == 1


async def test_check_names_scopes_that_the_token_lacks(do: DigitalOcean, cloud: Started) -> None:
    parts = cloud.load_balancers
    assert isinstance(parts, DigitalOceanLoadBalancers)
    assert await parts.missing_permissions() == []
    do.fault = {"status": 403, "text": '{"id": "forbidden", "message": "missing scope"}'}
    assert await parts.missing_permissions() == ["certificate:read"]
    with_firewall = f"{config_of(do)}[Firewall]\nname = fw\ntag = worker\n"
    parts = (await Started(with_firewall).start()).load_balancers
    assert isinstance(parts, DigitalOceanLoadBalancers)
    assert await parts.missing_permissions() == ["certificate:read", "firewall:read"]


async def test_a_full_account_is_no_room(do: DigitalOcean, cloud: Started, worker: Json) -> None:
    do.largest_balancers = 0
    with pytest.raises(NoRoom, match="limit exceeded"):
        await cloud.ensure(web(), host(worker))


async def test_a_change_waits_while_one_is_under_way(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """The API says 403 to that, which is no lack of rights."""
    await cloud.ensure(web(), host(worker))
    only(do)["status"] = "new"
    do.reads_until_active = 9
    assert cloud.load_balancers
    with pytest.raises(RetryAfter):
        await invoke(cloud.load_balancers.update_nodes, web(), [])
