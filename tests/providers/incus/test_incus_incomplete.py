"""What Incus does not say, or says wrongly, about Nodes: none of it makes one gone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Denied
from ccm.model.cloud import Gone, Instance, Unknown
from ccm.providers.incus.instances import IncusInstances
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import Lab
from tests.providers.incus.conftest import Started
from tests.providers.incus.test_incus_instances import instance, known, with_projects
from tests.support.deadlines import timeout

__all__ = ["instance"]

ABSENT = "incus://k8s/00000000-0000-4000-8000-000000000000"


async def check_unknown(cloud: Started, *words: str) -> None:
    """An absent instance is not said to be gone."""
    answer = await cloud.describe_one("in-4", ABSENT)
    assert isinstance(answer, Unknown)
    assert all(word in answer.why for word in words), answer.why


async def test_a_certificate_without_rights_proves_nothing(lab: Lab) -> None:
    """IN18: the answer of 6.0.4, an error."""
    cloud = await Started(lab.config(who="OTHER")).start()
    with pytest.raises(Denied):
        await cloud.describe_one("node-1")


async def test_an_empty_list_of_a_newer_incus_proves_nothing(lab: Lab, tmp_path: Path) -> None:
    """IN19: 6.0.6 and 7 say `[]` where rights are missing; that one answer is replayed."""
    empty = {"type": "sync", "metadata": []}
    with lab.gateway(tmp_path / "other", "OTHER").running() as gateway:
        gateway.set_rules({"path": r"/instances\?", "status": 200, "body": empty})
        cloud = await Started(lab.config(f"unix://{gateway.socket}")).start()
        with pytest.raises(Denied, match="permission"):
            await cloud.describe_one("in-4", ABSENT)
        await cloud.close()


async def test_a_project_that_does_not_exist_proves_nothing(lab: Lab) -> None:
    """IN20, IN21: an administrator gets an empty list."""
    cloud = await Started(lab.config("", "k9s", who="ADMIN")).start()
    with pytest.raises(CloudError, match="there is no project k9s"):
        await cloud.describe_one("in-4", ABSENT)
    await cloud.close()
    cloud = await Started(lab.config("", "k8s", "k9s", who="ADMIN")).start()
    await check_unknown(cloud, "there is no project k9s")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"status": 500}, id="an error"),
        pytest.param({"status": 200, "body": {"type": "sync", "metadata": []}}, id="no rights"),
    ],
)
async def test_a_name_counts_only_if_every_project_was_read(
    lab: Lab, gateway: Gateway, instance: str, answer: dict[str, object]
) -> None:
    """IN3: another project may have the same name; the ID that a Node gets is for ever."""
    cloud = await with_projects(lab, gateway, "k8s", "bridged")
    there = await known(cloud, instance)
    gateway.set_rules(
        {"path": r"/instances\?project=bridged", **answer}, {"path": "/projects/b", "status": 403}
    )
    assert isinstance(await cloud.describe_one(instance), Unknown)
    assert await cloud.describe_one(instance, there.provider_id) == there
    await cloud.close()


async def test_an_unreadable_instance_may_be_the_one_that_names_a_node(
    lab: Lab, cloud: Started, gateway: Gateway, instance: str
) -> None:
    """IN5, IN24: nobody sees what an instance on a member that is down says of its Node."""
    lab.call("PATCH", f"/instances/{instance}", {"config": {"user.kubernetes-node": "worker"}})
    listed = lab.get("/instances", recursion=2)
    dead = {"name": "dead", "config": None, "status_code": 112, "location": "m2"}
    body = {"type": "sync", "metadata": [*listed, dead]}
    gateway.set_rules({"path": r"/instances\?", "status": 200, "body": body})
    assert isinstance(await cloud.describe_one("worker"), Unknown)
    assert isinstance(await cloud.describe_one("node-1"), Instance), "its name is its own"


async def test_two_instances_of_one_uuid_are_none(
    lab: Lab, cloud: Started, gateway: Gateway, instance: str
) -> None:
    """Incus lets nobody write one; two servers may each have the machine of one backup."""
    there = await known(cloud, instance)
    listed = lab.get("/instances", recursion=2)
    (record,) = (one for one in listed if one["name"] == instance)
    body = {"type": "sync", "metadata": [*listed, {**record, "name": "in-2"}]}
    gateway.set_rules({"path": r"/instances\?", "status": 200, "body": body})
    answer = await cloud.describe_one(instance, there.provider_id)
    assert isinstance(answer, Unknown)
    assert "in-1 in k8s, in-2 in k8s" in answer.why


async def test_a_zone_that_cannot_be_read_is_asked_for_once(
    lab: Lab, gateway: Gateway, instance: str
) -> None:
    """And the answers about others, which need none, are there."""
    config = lab.config(f"unix://{gateway.socket}").replace("zone-key = user.zone", "")
    cloud = await Started(config).start()
    there = await known(cloud, instance)
    await cloud.close()
    cloud = await Started(config).start()
    gateway.set_rules({"path": r"^/1\.0$", "status": 500})
    names = ("node-1", "node-2", "node-3", instance)
    answers = await cloud.describe(*map(node, names), node("in-4", ABSENT))
    assert [type(answers[name]) for name in names] == 4 * [Unknown]
    assert isinstance(answers["in-4"], Gone)
    assert cloud.operations.count("GetServer") == 1
    gateway.set_rules()
    assert await known(cloud, instance) == there
    await cloud.close()


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"path": "/projects/", "status": 500}, "GetProject: 500"),
        ({"path": "/instances/in-4", "status": 403}, "GetInstance: 403"),
        ({"path": "/instances/in-4", "status": 500}, "GetInstance: 500"),
        (
            {"path": "/instances/in-4", "status": 404, "body": {"error": "Project not found"}},
            "Project not found",
        ),
        ({"path": "/instances/in-4", "drop": True}, "GetInstance: ConnectionReset"),
    ],
)
async def test_each_proof_is_needed(
    cloud: Started, gateway: Gateway, rule: dict[str, object], why: str
) -> None:
    assert isinstance(await cloud.describe_one("in-4", ABSENT), Gone)
    gateway.set_rules(rule)
    await check_unknown(cloud, why)


async def test_what_a_list_lacks_and_is_there_is_not_gone(
    lab: Lab, cloud: Started, gateway: Gateway, instance: str
) -> None:
    there = await known(cloud, instance)
    listed = [one for one in lab.get("/instances", recursion=2) if one["name"] != instance]
    body = {"type": "sync", "metadata": listed}
    gateway.set_rules({"path": r"/instances\?", "status": 200, "body": body})
    answer = await cloud.describe_one(instance, there.provider_id)
    assert answer == Unknown(
        f"instance {instance} is there, but the list does not assign it to this Node"
    )


async def test_an_instance_that_hangs_holds_no_one_up(
    cloud: Started, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN26: one read has no answer; who waits for another list gets it."""
    monkeypatch.setattr(IncusInstances, "batch_size", 1)
    limit = round(timeout(1.0))
    monkeypatch.setattr(cloud.gate, "_timeout", limit)
    gateway.set_rules({"path": "/instances/in-4", "delay": 1.5 * limit, "status": 500})
    slow = asyncio.create_task(cloud.describe_one("in-4", ABSENT))
    assert isinstance(await cloud.describe_one("node-1"), Instance)
    assert not slow.done()
    answer = await slow
    assert isinstance(answer, Unknown)
    assert f"no answer within {limit} s" in answer.why


async def test_a_daemon_that_is_held_deletes_nothing(lab: Lab) -> None:
    """IN22."""
    cloud = await Started(lab.config()).start()
    there = await known(cloud, "node-1")
    lab.run("api", "hold")
    try:
        with pytest.raises(CloudError):
            await cloud.describe(node("node-1", there.provider_id), node("in-4", ABSENT))
    finally:
        lab.run("api", "resume")
    assert await cloud.describe_one("node-1", there.provider_id) == there


# Lies.


def altered(**changes: Any) -> Any:
    """The list with every instance changed so."""
    return lambda listed: [{**one, **changes} for one in listed]


@pytest.mark.parametrize(
    "lie",
    [
        lambda listed: None,
        lambda listed: {one["name"]: one for one in listed},
        lambda listed: [one["name"] for one in listed],
        lambda listed: [[one] for one in listed],
        altered(name=None),
        altered(name=["in-1"]),
        altered(config=[]),
        altered(config={"volatile.uuid": 5}),
        altered(status_code="102", location={"m": 1}),
        altered(expanded_devices={"eth0": None}, state=[]),
        altered(expanded_devices=[{"type": "nic"}], expanded_config="x"),
        altered(state={"network": {"eth0": {"hwaddr": 1, "addresses": {"a": 1}}}}),
        altered(type=7, project=None),
    ],
)
async def test_wrong_types_make_no_node_gone(
    lab: Lab, cloud: Started, gateway: Gateway, instance: str, lie: Any
) -> None:
    """And no other error than that of a call: a worker goes on."""
    there = await known(cloud, instance)
    body = {"type": "sync", "metadata": lie(lab.get("/instances", recursion=2))}
    gateway.set_rules({"path": r"/instances\?", "status": 200, "body": body})
    try:
        answer = await cloud.describe_one(instance, there.provider_id)
    except CloudError:
        return
    assert not isinstance(answer, Gone), answer
    if isinstance(answer, Instance):
        assert answer.provider_id == there.provider_id
        assert "" not in (answer.zone, answer.region), "no label is empty"


@pytest.mark.parametrize(
    "body",
    ['{"type": "sync", "metadata": [{"name": "in-1", "con', "null", '"sync"', 2000 * "[", ""],
)
async def test_an_answer_that_is_no_answer_is_an_error(
    cloud: Started, gateway: Gateway, body: str
) -> None:
    for status in (200, 202, 301):
        gateway.set_rules({"path": r"/instances\?", "status": status, "body": body})
        with pytest.raises(CloudError):
            await cloud.describe_one("in-4", ABSENT)
