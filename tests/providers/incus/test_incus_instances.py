"""Nodes on a real Incus: found by UUID, never gone on doubt."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Denied
from ccm.model.cloud import AddressType, Gone, Instance, PowerState, Unknown
from ccm.providers.incus.instances import IncusInstances
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import Lab, until
from tests.providers.incus.conftest import Started

NAMES = ("in-1", "in-2", "in-3", "in-4")


@pytest.fixture
def instance(lab: Lab) -> Iterator[str]:
    """A running instance; all that are named like it are gone afterwards."""
    remove_all(lab)
    lab.create("in-1", config={"user.zone": "zone-b"})
    yield "in-1"
    remove_all(lab)


def remove_all(lab: Lab) -> None:
    for project in (lab.project, "bridged"):
        lab.remove(*NAMES, project=project)


async def known(cloud: Started, name: str) -> Instance:
    """What is said about a Node without an ID."""
    answer = await cloud.describe_one(name)
    assert isinstance(answer, Instance), answer
    return answer


async def with_projects(lab: Lab, gateway: Gateway, *projects: str) -> Started:
    return await Started(lab.config(f"unix://{gateway.socket}", *projects)).start()


async def test_a_node_is_the_instance_of_its_name(lab: Lab, cloud: Started, instance: str) -> None:
    """IN1."""
    answer = await known(cloud, instance)
    uuid = lab.instance(instance)["config"]["volatile.uuid"]
    assert answer.provider_id == f"incus://k8s/{uuid}"
    assert (answer.type, answer.zone, answer.region) == ("container", "zone-b", "lab")
    own = [one["address"] for one in lab.addresses(instance)]
    assert [one.address for one in answer.addresses] == [*own, instance]
    assert answer.addresses[-1].type is AddressType.HOSTNAME
    assert cloud.operations == ["ListInstances"]


async def test_without_a_zone_of_its_own_it_has_that_of_its_server(
    lab: Lab, gateway: Gateway
) -> None:
    config = lab.config(f"unix://{gateway.socket}").replace("zone-key = user.zone", "")
    cloud = await Started(config).start()
    assert (await known(cloud, "node-1")).zone == (await known(cloud, "node-2")).zone == "m1"
    assert cloud.operations.count("GetServer") == 1
    await cloud.close()


async def test_an_id_is_served_whatever_happens_to_the_name(
    lab: Lab, cloud: Started, instance: str
) -> None:
    """IN14, IN13, IN12, IN17."""
    there = await known(cloud, instance)
    lab.set_state([instance], "stop")
    lab.call("POST", f"/instances/{instance}", {"name": "in-2"})
    answer = await cloud.describe_one(instance, there.provider_id)
    assert isinstance(answer, Instance)
    assert answer.power is PowerState.STOPPED
    source = {"type": "copy", "source": "in-2"}
    lab.call("POST", "/instances", {"name": instance, "source": source})
    lab.set_state([instance], "start")
    copy = await known(cloud, instance)
    assert copy.provider_id != there.provider_id, "a copy is another machine"
    lab.remove("in-2")
    answer = await cloud.describe_one(instance, there.provider_id)
    assert isinstance(answer, Gone), "the name is another's now"
    assert cloud.operations[-3:] == ["ListInstances", "GetProject", "GetInstance"]


async def test_a_stop_is_seen_and_a_freeze_is_none(lab: Lab, cloud: Started, instance: str) -> None:
    """IN9, IN10, IN11."""
    there = await known(cloud, instance)
    lab.call("PUT", f"/instances/{instance}/state", {"action": "freeze", "timeout": 30})
    assert await cloud.describe_one(instance, there.provider_id) == there
    lab.call("PUT", f"/instances/{instance}/state", {"action": "unfreeze", "timeout": 30})
    lab.set_state([instance], "stop")
    stopped = await known(cloud, instance)
    assert (stopped.power, stopped.addresses) == (PowerState.STOPPED, there.addresses)
    lab.set_state([instance], "start")
    assert await known(cloud, instance) == there


async def test_two_projects_are_one_cluster(lab: Lab, gateway: Gateway, instance: str) -> None:
    """IN3, IN16, IN4."""
    cloud = await Started(lab.config(f"unix://{gateway.socket}")).start()
    there = await known(cloud, instance)
    lab.create("in-2", project="bridged")
    assert isinstance(await cloud.describe_one("in-2"), Gone), "nobody reads that project"
    assert not [call for call in gateway.calls if "bridged" in call.path]
    both = await with_projects(lab, gateway, "k8s", "bridged")
    assert (await known(both, "in-2")).provider_id.startswith("incus://bridged/")
    lab.create("in-1", project="bridged")
    answer = await both.describe_one("in-1")
    assert isinstance(answer, Unknown)
    assert "in-1 in bridged, in-1 in k8s" in answer.why
    lab.remove("in-1", project="bridged")
    lab.set_state([instance], "stop")
    lab.call("POST", f"/instances/{instance}", {"project": "bridged", "migration": True})
    answer = await both.describe_one(instance, there.provider_id)
    assert isinstance(answer, Instance)
    assert answer.provider_id == there.provider_id, "a Node keeps its ID"
    await both.close()
    await cloud.close()


async def test_an_instance_may_name_its_node(lab: Lab, cloud: Started, instance: str) -> None:
    """IN5."""
    config = {"config": {"user.kubernetes-node": "worker.example"}}
    lab.call("PATCH", f"/instances/{instance}", config)
    assert (await known(cloud, "worker.example")).addresses[-1].address == instance
    assert isinstance(await cloud.describe_one(instance), Unknown), "it is another Node's"
    lab.create("in-2", config=config["config"])
    assert isinstance(await cloud.describe_one("worker.example"), Unknown)


async def test_an_id_of_cluster_apis_provider_is_kept(cloud: Started, instance: str) -> None:
    """IN7."""
    answer = await cloud.describe_one("other", f"lxc:///{instance}")
    assert isinstance(answer, Instance)
    assert answer.provider_id == f"lxc:///{instance}"
    assert isinstance(await cloud.describe_one("other", "lxc:///in-4"), Gone)


async def test_an_odd_name_asks_for_nothing_else(cloud: Started, gateway: Gateway) -> None:
    """IN8."""
    for name in ("a/../../projects", "..", "%2e%2e", "a?project=default", "a b"):
        assert not isinstance(await cloud.describe_one(name), Instance)
    paths = {call.path.partition("?")[0] for call in gateway.calls}
    asked = {path for path in paths if not path.startswith("/1.0/instances/")}
    assert asked == {"/1.0/instances", "/1.0/projects/k8s"}
    assert not [path for path in paths if path.count("/") > 3]


async def test_interfaces_of_pods_are_no_addresses(lab: Lab, cloud: Started, instance: str) -> None:
    """IN29."""
    there = await known(cloud, instance)
    lab.run("pod", instance, "10.244.9.9")
    assert await known(cloud, instance) == there


async def test_an_instance_without_a_uuid_has_no_id(
    lab: Lab, cloud: Started, gateway: Gateway
) -> None:
    """IN69: very old ones that never ran; a record is replayed without it."""
    record = lab.instance("node-1")
    del record["config"]["volatile.uuid"]
    body = {"type": "sync", "metadata": [record]}
    gateway.set_rules({"path": r"/instances\?", "status": 200, "body": body})
    answer = await cloud.describe_one("node-1")
    assert isinstance(answer, Unknown)
    assert "start it once" in answer.why


# Doubts.

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
    await cloud.close()


async def test_an_empty_list_of_a_newer_incus_proves_nothing(lab: Lab, tmp_path: Path) -> None:
    """IN19: 6.0.6 and 7 say `[]` where rights are missing; that one answer is replayed."""
    empty = {"type": "sync", "metadata": []}
    with lab.gateway(tmp_path / "other", "OTHER").running() as gateway:
        gateway.set_rules({"path": r"/instances\?", "status": 200, "body": empty})
        cloud = await Started(lab.config(f"unix://{gateway.socket}")).start()
        await check_unknown(cloud, "permission")
        await cloud.close()


async def test_a_project_that_does_not_exist_proves_nothing(lab: Lab) -> None:
    """IN20, IN21: an administrator gets an empty list."""
    cloud = await Started(lab.config("", "k9s", who="ADMIN")).start()
    await check_unknown(cloud, "there is no project k9s")
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
        f"instance {instance} is there, and the list does not say it is this Node's"
    )


async def test_an_instance_that_hangs_holds_nobody_up(
    cloud: Started, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN26: one read has no answer; who waits for another list gets it."""
    monkeypatch.setattr(IncusInstances, "batch_size", 1)
    monkeypatch.setattr(cloud.gate, "_timeout", 2.0)
    gateway.set_rules({"path": "/instances/in-4", "delay": 3.0, "status": 500})
    slow = asyncio.create_task(cloud.describe_one("in-4", ABSENT))
    async with asyncio.timeout(1.5):
        assert isinstance(await cloud.describe_one("node-1"), Instance)
    answer = await slow
    assert isinstance(answer, Unknown)
    assert "no answer within 2 s" in answer.why


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
    await cloud.close()


# Certificates.


async def test_a_server_that_is_not_the_pinned_one_is_not_spoken_to(
    lab: Lab, tmp_path: Path
) -> None:
    """IN27."""
    config = lab.config().replace(lab.env["INCUS_SERVER_CERT"], lab.env["INCUS_OTHER_CERT"])
    cloud = await Started(config).start()
    with pytest.raises(CloudError, match="CERTIFICATE_VERIFY_FAILED"):
        await cloud.describe_one("node-1")
    await cloud.close()


async def test_a_pinned_server_may_be_called_by_any_name(lab: Lab) -> None:
    cloud = await Started(lab.config().replace("127.0.0.1", "localhost")).start()
    assert isinstance(await cloud.describe_one("node-1"), Instance)
    await cloud.close()


async def test_an_exchanged_certificate_is_used(lab: Lab, tmp_path: Path) -> None:
    """IN28."""

    def write(who: str) -> None:
        for kind in ("CERT", "KEY"):
            shutil.copy(lab.env[f"INCUS_{who}_{kind}"], tmp_path / f"new.{kind}")
            (tmp_path / f"new.{kind}").replace(tmp_path / kind)

    write("OTHER")
    config = lab.config()
    for kind in ("CERT", "KEY"):
        config = config.replace(lab.env[f"INCUS_CLIENT_{kind}"], str(tmp_path / kind))
    cloud = await Started(config).start()
    with pytest.raises(Denied):
        await cloud.describe_one("node-1")
    write("CLIENT")
    assert isinstance(await cloud.describe_one("node-1"), Instance)
    (tmp_path / "KEY").write_text("nonsense")
    assert isinstance(await cloud.describe_one("node-1"), Instance), "the old ones stay"
    await cloud.close()


async def test_no_secret_is_in_an_error(lab: Lab, tmp_path: Path) -> None:
    """IN70."""
    key = tmp_path / "KEY"
    key.write_text("canary-d41d8cd9")
    cloud = await Started(lab.config().replace(lab.env["INCUS_CLIENT_KEY"], str(key))).start()
    with pytest.raises(CloudError) as raised:
        await cloud.describe_one("node-1")
    assert "canary" not in f"{raised.value!r} {raised.value.__cause__!r}"
    await cloud.close()


def test_the_lab_is_left_as_it_was(lab: Lab) -> None:
    listed = {one["name"] for one in lab.get("/instances", recursion=1)}
    until(lambda: not listed & {*NAMES}, "nothing is left")
