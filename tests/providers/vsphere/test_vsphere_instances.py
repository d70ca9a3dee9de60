"""Nodes and their machines: found by UUID, with few calls, and what is told of them."""

from contextlib import suppress

import pytest

from ccm.errors import CloudError
from ccm.model.cloud import AddressType, Gone, PowerState, swapped_uuid
from ccm.providers.vsphere.inventory import PAGE
from tests.labs.vsphere.lab import Lab, config_of, nic
from tests.providers.vsphere.conftest import Started, node_of, node_with

UUID = "42000001-ab00-4c00-8000-0000000000aa"
SWAPPED = "01000042-00ab-004c-8000-0000000000aa"


@pytest.mark.parametrize(
    "written", ["vsphere://{}", "vsphere:// {}", "vsphere://{} "], ids=["plain", "before", "after"]
)
async def test_an_id_in_capitals_and_with_blanks_is_the_same(
    lab: Lab, cloud: Started, written: str
) -> None:
    """VS3: and a Node keeps what was written."""
    (made,) = lab.create("node-1")
    provider_id = written.format(made["uuid"].upper())
    assert (await cloud.known(node_with("node-1", "", provider_id))).provider_id == provider_id
    machine_of = cloud.instances.machine_of  # type: ignore[union-attr]
    assert machine_of(provider_id) == machine_of(f"vsphere://{swapped_uuid(made['uuid'])}") != ""
    assert machine_of("vsphere://odd") == ""


@pytest.mark.parametrize("read", [UUID, SWAPPED, SWAPPED.upper()])
async def test_a_guest_reads_its_uuid_in_either_order(lab: Lab, cloud: Started, read: str) -> None:
    """VS4: whatever the machine is called."""
    lab.create("pet")
    lab.change("pet", uuid=UUID)
    assert (await cloud.known(node_with("node-1", read))).provider_id == f"vsphere://{UUID}"


async def test_two_machines_in_the_two_orders_are_none(lab: Lab, cloud: Started) -> None:
    """VS4: nobody knows which; an ID says which."""
    lab.create("one", "two")
    lab.change("one", uuid=UUID)
    lab.change("two", uuid=SWAPPED)
    reported = await cloud.why(node_with("node-1", UUID))
    assert "several machines are node node-1: one (vm-" in reported
    assert "two (vm-" in reported
    asked = node_with("node-1", UUID, f"vsphere://{UUID}")
    assert (await cloud.known(asked)).provider_id == f"vsphere://{UUID}"


async def test_a_copy_with_the_uuid_is_reported(lab: Lab, other: Lab, cloud: Started) -> None:
    """VS5: also one that is off, and one in another vCenter; never gone while one lives."""
    (made,) = lab.create("node-1")
    lab.create("copy")
    lab.change("copy", uuid=made["uuid"], power="off")
    for asked in (node_of(made), node_of(made, is_new=True)):
        reported = await cloud.why(asked)
        assert "node-1 (vm-" in reported
        assert "copy (vm-" in reported
    lab.change("copy", delete=True)
    other.create("copy")
    other.change("copy", uuid=made["uuid"])
    two = await Started(config_of({"a": lab.section(), "b": other.section()})).start()
    reported = await two.why(node_of(made))
    assert [f"({made['moref']}) of a" in reported, ") of b" in reported] == [True, True]
    lab.change("node-1", delete=True)
    assert (await two.known(node_of(made))).provider_id == f"vsphere://{made['uuid']}"


async def test_a_node_that_is_not_found_tells_of_a_datacenter_that_is_not_there(lab: Lab) -> None:
    """A name that is written wrongly hides all machines."""
    lab.create("node-1")
    cloud = await Started(lab.config(datacenters=["DC9"])).start()
    assert "datacenter DC9 is not there" in await cloud.why(node_with("node-1"))


async def test_two_guests_of_one_name_are_none(lab: Lab, cloud: Started) -> None:
    """VS6."""
    lab.create("one", "two")
    for name in ("one", "two"):
        lab.set_guest(name, nic("10.0.0.1"), hostname="node-1")
    reported = await cloud.why(node_with("node-1"))
    assert reported.startswith("several machines are node node-1: one (vm-")


@pytest.mark.parametrize("hostname", ["Node-1", "node-1.example.com"])
async def test_a_guest_may_write_its_name_otherwise(
    lab: Lab, cloud: Started, hostname: str
) -> None:
    """VS7."""
    (made,) = lab.create("pet")
    lab.set_guest("pet", nic("10.0.0.1"), hostname=hostname)
    found = await cloud.known(node_with("node-1"))
    assert found.provider_id == f"vsphere://{made['uuid']}"


async def test_the_name_in_vcenter_is_the_last_that_counts(lab: Lab, cloud: Started) -> None:
    """VS8: the Node's own name is its host name, whatever the guest says; node-10 is not node-1."""
    (made,) = lab.create("node-1")
    lab.create("node-10")
    lab.set_guest("node-1", nic("10.0.0.1"), hostname="localhost")
    for asked in (node_with("node-1"), node_with("node-1", made["uuid"])):
        found = await cloud.known(asked)
        assert found.provider_id == f"vsphere://{made['uuid']}"
        assert (found.addresses[0].type, found.addresses[0].address) == (
            AddressType.HOSTNAME,
            "node-1",
        )


async def test_a_machine_of_the_name_with_another_uuid_is_another(lab: Lab, cloud: Started) -> None:
    """As of another cluster, or of a host that is none of vCenter's."""
    lab.create("node-1")
    reported = await cloud.why(node_with("node-1", UUID))
    assert "but not its UUID: it has UUID 43" in reported


async def test_templates_are_no_nodes(lab: Lab, cloud: Started) -> None:
    """VS9: by UUID and by name."""
    (template,) = lab.create("node-1")
    lab.change("node-1", template=True)
    assert "called node-1" in await cloud.why(node_with("node-1"))
    (made,) = lab.create("node-2")
    lab.change("node-2", uuid=template["uuid"])
    found = await cloud.known(node_with("node-2", template["uuid"]))
    assert found.provider_id == f"vsphere://{template['uuid']}"
    lab.change(made["name"], delete=True)
    gone = await cloud.describe_one(node_of(template))
    assert isinstance(gone, Gone) or "has vm-" in gone.why  # type: ignore[union-attr]


async def test_power_follows_the_machine(lab: Lab, cloud: Started) -> None:
    """VS10, VS11, VS12."""
    (made,) = lab.create("node-1")
    asked = node_of(made)
    assert (await cloud.known(asked)).power is PowerState.RUNNING
    for power, state in (
        ("suspend", PowerState.STOPPED),
        ("on", PowerState.RUNNING),
        ("off", PowerState.STOPPED),
        ("on", PowerState.RUNNING),
    ):
        lab.change("node-1", power=power)
        assert (await cloud.known(asked)).power is state


@pytest.mark.parametrize("state", ["inaccessible", "disconnected", "orphaned", "invalid"])
async def test_a_machine_that_its_host_does_not_show_exists(
    lab: Lab, cloud: Started, state: str
) -> None:
    """VS15, VS16, VS17: neither gone nor off."""
    (made,) = lab.create("node-1")
    lab.change("node-1", connection=state)
    assert (await cloud.known(node_of(made))).power is PowerState.UNKNOWN


async def test_a_machine_whose_uuid_cannot_be_read_any_more_is_known(
    lab: Lab, cloud: Started
) -> None:
    """VS15: its managed object is the same; for one never seen, nobody else is gone either."""
    (made,) = lab.create("node-1")
    await cloud.known(node_of(made))
    lab.change("node-1", connection="inaccessible")
    lab.edit("RetrievePropertiesEx", ("<name>config.uuid</name>", "<name>config.other</name>"))
    assert (await cloud.known(node_of(made))).power is PowerState.UNKNOWN
    fresh = await Started(cloud.text).start()
    assert "machine node-1 has no UUID" in await fresh.why(node_of(made))


async def test_instance_types_are_upstreams(lab: Lab, cloud: Started) -> None:
    """VS59: whole GiB, so that 512 MiB are none."""
    (made,) = lab.create("node-1")
    lab.change("node-1", memory_mb=512, guest_id="ubuntu64Guest")
    assert (await cloud.known(node_of(made))).type == "vsphere-vm.cpu-4.mem-0gb.os-ubuntu"
    lab.change("node-1", memory_mb=8191, guest_id="rhel9_64Guest")
    assert (await cloud.known(node_of(made))).type == "vsphere-vm.cpu-4.mem-7gb.os-unknown"


async def test_calls_do_not_grow_with_machines_or_nodes(lab: Lab, tagged: Started) -> None:
    """VS1, VS2: a read of all machines, and one of all tags."""
    machines = lab.create(*(f"node-{number}" for number in range(20)))
    new = [node_of(one, is_new=True) for one in machines]
    found = await tagged.describe(*new)
    assert {name: one.provider_id for name, one in found.items()} == {  # type: ignore[union-attr]
        one["name"]: f"vsphere://{one['uuid']}" for one in machines
    }
    calls = lab.calls()
    login = ("RetrieveServiceContent", "Login", "CreateContainerView")
    assert [calls.pop(name) for name in (*login, "RetrievePropertiesEx")] == [1, 1, 1, 1]
    assert calls.pop("POST /rest/com/vmware/cis/session") == 1
    assert calls.pop("POST /rest/com/vmware/cis/tagging/tag-association") == 1
    assert calls.total() == 5, f"a call for each of three tags and two categories: {calls}"
    lab.forget_calls()
    await tagged.describe(*map(node_of, machines))
    assert lab.calls().total() == 2


async def test_all_pages_are_read(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VS2."""
    machines = lab.create(*(f"node-{number}" for number in range(20)))
    monkeypatch.setattr("ccm.providers.vsphere.inventory.PAGE", 7)
    found = await cloud.describe(*map(node_of, machines))
    assert len({one.provider_id for one in found.values()}) == 20  # type: ignore[union-attr]
    assert lab.calls()["ContinueRetrievePropertiesEx"] >= 4


async def test_what_guests_write_makes_no_list_too_large(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root in a guest writes a megabyte of metadata, and many of them more than an answer has."""
    machines = lab.create(*(f"node-{number}" for number in range(8)))
    for made in machines:
        lab.change(made["name"], metadata="x" * (32 << 10))
    await cloud.known(node_of(machines[0]))
    monkeypatch.setattr("ccm.http.BODY_LIMIT", 160 << 10)
    found = await cloud.describe(*map(node_of, machines))
    assert len({one.provider_id for one in found.values()}) == 8  # type: ignore[union-attr]
    lab.change(machines[0]["name"], metadata="x" * (160 << 10))
    with pytest.raises(CloudError, match="a body of more than"):
        await cloud.describe(node_of(machines[0]))


async def test_lists_that_were_too_large_once_are_read_all_the_same_later(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages of one object each there were more pages than a list may have, until a restart."""
    made = lab.create(*(f"node-{number}" for number in range(20)))[0]
    await cloud.known(node_of(made))
    monkeypatch.setattr("ccm.providers.vsphere.inventory.MAX_PAGES", 10)
    with monkeypatch.context() as too_small:
        too_small.setattr("ccm.http.BODY_LIMIT", 4 << 10)
        with pytest.raises(CloudError, match="more than 10 pages"):
            await cloud.describe(node_of(made))
    for _ in range(PAGE.bit_length()):
        with suppress(CloudError):
            await cloud.describe(node_of(made))
    await cloud.known(node_of(made))


async def test_parts_that_guests_write_make_no_list_too_large(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each address of a guest is ten elements in the answer, and may be few bytes."""
    machines = lab.create(*(f"node-{number}" for number in range(8)))
    await cloud.known(node_of(machines[0]))
    monkeypatch.setattr("ccm.cloud.lookup.MAX_ELEMENTS", 800)
    found = await cloud.describe(*map(node_of, machines))
    assert len({one.provider_id for one in found.values()}) == 8  # type: ignore[union-attr]


async def test_a_list_of_objects_without_number_is_an_error(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand pages of them took gigabytes, and were then gone through in one turn."""
    made = lab.create("node-a")[0]
    await cloud.known(node_of(made))
    monkeypatch.setattr("ccm.cloud.lookup.MAX_RECORDS", 2)
    with pytest.raises(CloudError, match="ListInventory: the list has more than 2 records"):
        await cloud.describe(node_of(made))


async def test_services_are_left_to_others(cloud: Started) -> None:
    """VS58."""
    assert [cloud.load_balancers, cloud.routes, cloud.volumes] == [None] * 3


async def test_a_guest_that_calls_itself_like_another_machine_is_not_its_node(
    lab: Lab, cloud: Started
) -> None:
    """VS6, VS8: whoever is root in it may; the machine of that name may have said nothing yet."""
    lab.create("node-1", "pet")
    lab.set_guest("node-1", hostname="localhost")
    lab.set_guest("pet", nic("10.0.0.1"), hostname="node-1")
    reported = await cloud.why(node_with("node-1"))
    assert "several machines are node node-1: node-1 (" in reported
    assert "pet (" in reported
