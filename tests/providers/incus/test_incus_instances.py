"""Nodes on a real Incus: found by UUID, never gone on doubt."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import node, service
from ccm.errors import CloudError, Denied
from ccm.model.cloud import AddressType, Gone, Instance, PowerState, Unknown
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


async def test_two_remotes_are_two_regions(lab: Lab, gateway: Gateway) -> None:
    """One that does not answer costs the other's Nodes nothing, and its own not their Nodes."""
    south = lab.config("", "bridged").partition("[Node]")[0].replace('"lab"', '"south"')
    cloud = await Started(
        lab.config(f"unix://{gateway.socket}") + f"\nremote = lab\n{south}"
    ).start()
    there = [await known(cloud, name) for name in ("node-1", "br-1")]
    assert [one.region for one in there] == ["lab", "south"]
    gateway.set_rules({"drop": True})
    asked = [node(one.addresses[-1].address, one.provider_id) for one in there]
    answers = await cloud.describe(*asked, node("in-4"))
    assert [type(one) for one in answers.values()] == [Unknown, Instance, Unknown]
    assert isinstance(await cloud.describe_one("br-1"), Unknown), "it may be in the other, too"
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
    answer = await cloud.describe_one(instance, f"lxc:///{instance}")
    assert isinstance(answer, Instance)
    assert answer.provider_id == f"lxc:///{instance}"
    assert isinstance(await cloud.describe_one("in-4", "lxc:///in-4"), Gone)


async def test_a_kubelet_that_writes_the_name_of_another_machine_is_not_trusted(
    lab: Lab, cloud: Started, instance: str
) -> None:
    """IN7: a UUID of another's is seen as one that two Nodes have, a name would not be."""
    claim = node("other", f"lxc:///{instance}")
    assert isinstance((await cloud.describe(claim))["other"], Unknown)
    there = await known(cloud, instance)
    assert cloud.load_balancers
    made = await invoke(cloud.load_balancers.ensure, service(), [claim])
    assert made.warnings == ("nodes other have no instance of their own in lab",)
    await invoke(cloud.load_balancers.delete, service())
    assert cloud.routes
    with pytest.raises(CloudError, match="lists no instance of node other"):
        await invoke(cloud.routes.create, claim, "10.244.7.0/24")
    lab.call("PATCH", f"/instances/{instance}", {"config": {"user.kubernetes-node": "other"}})
    answer = (await cloud.describe(claim))["other"]
    assert isinstance(answer, Instance), "the instance says so itself"
    assert answer.addresses == there.addresses


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


# Certificates.


async def test_a_server_that_is_not_the_pinned_one_is_not_spoken_to(
    lab: Lab, tmp_path: Path
) -> None:
    """IN27."""
    config = lab.config().replace(lab.env["INCUS_SERVER_CERT"], lab.env["INCUS_OTHER_CERT"])
    cloud = await Started(config).start()
    with pytest.raises(CloudError, match="CERTIFICATE_VERIFY_FAILED"):
        await cloud.describe_one("node-1")


async def test_a_pinned_server_may_be_called_by_any_name(lab: Lab) -> None:
    cloud = await Started(lab.config().replace("127.0.0.1", "localhost")).start()
    assert isinstance(await cloud.describe_one("node-1"), Instance)


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


async def test_no_secret_is_in_an_error(lab: Lab, tmp_path: Path) -> None:
    """IN70."""
    key = tmp_path / "KEY"
    key.write_text("canary-d41d8cd9")
    cloud = await Started(lab.config().replace(lab.env["INCUS_CLIENT_KEY"], str(key))).start()
    with pytest.raises(CloudError) as raised:
        await cloud.describe_one("node-1")
    assert "canary" not in f"{raised.value!r} {raised.value.__cause__!r}"


def test_the_lab_is_left_as_it_was(lab: Lab) -> None:
    listed = {one["name"] for one in lab.get("/instances", recursion=1)}
    until(lambda: not listed & {*NAMES}, "nothing is left")
