"""Nobody is gone on doubt: rights, failures, lists that are short, and answers that are none."""

import pytest

from ccm.errors import CloudError
from ccm.model.cloud import Gone, Instance
from tests.labs.vsphere.lab import Lab, config_of
from tests.providers.vsphere.conftest import Started, node_of, node_with

ABSENT = node_with("never", "", "vsphere://42ffffff-ab00-4c00-8000-0000000000ff")
IS_GRANTED = ("<isGranted>true</isGranted>", "<isGranted>false</isGranted>")


async def test_a_deleted_machine_is_gone_by_all_proofs(lab: Lab, cloud: Started) -> None:
    """VS13: the inventory, rights, the index in both orders, and its managed object."""
    (made,) = lab.create("node-1")
    await cloud.known(node_of(made))
    lab.change("node-1", delete=True)
    lab.forget_calls()
    assert isinstance(await cloud.describe_one(node_of(made)), Gone)
    assert lab.calls() == {
        "RetrievePropertiesEx": 2,
        "HasPrivilegeOnEntities": 1,
        "FindAllByUuid": 2,
    }
    fresh = await Started(cloud.text).start()
    assert isinstance(await fresh.describe_one(node_of(made)), Gone), "after a restart, too"


async def test_a_new_node_is_never_gone(lab: Lab, cloud: Started) -> None:
    """VS14 is the controller's: what it asks about is not Ready."""
    assert "no machine that the login may see" in await cloud.why(node_with("node-1"))


@pytest.mark.parametrize("restarted", [False, True])
async def test_properties_that_cannot_be_read_delete_no_one(
    lab: Lab, cloud: Started, restarted: bool
) -> None:
    """VS18: vCenter finds machines and answers 503 to their properties; upstream deletes Nodes."""
    (made,) = lab.create("node-1")
    if not restarted:
        await cloud.known(node_of(made))
    lab.fail("RetrieveProp", status=503)
    for asked in (node_of(made), ABSENT):
        with pytest.raises(CloudError, match="lab: ListInventory: 503"):
            await cloud.describe_one(asked)
    lab.heal()
    await cloud.known(node_of(made))


async def test_a_vcenter_that_answers_nothing_deletes_no_one(lab: Lab, cloud: Started) -> None:
    """VS19, VS60."""
    machines = lab.create("node-1", "node-2")
    lab.fail(status=503)
    with pytest.raises(CloudError, match="503"):
        await cloud.describe(*map(node_of, machines))
    lab.heal()
    lab.fail(drop=True)
    with pytest.raises(CloudError, match="RetrieveServiceContent"):
        await cloud.describe(*map(node_of, machines))


async def test_a_machine_that_may_not_be_read_is_unknown(lab: Lab, cloud: Started) -> None:
    """VS20: others are served. The simulator knows no rights, so this answer is ours."""
    hidden, there = lab.create("node-1", "node-2")
    lab.edit("RetrievePropertiesEx", (hidden["uuid"], ""))
    answers = await cloud.describe(node_of(hidden), node_of(there), ABSENT)
    assert isinstance(answers["node-2"], Instance)
    for asked in ("node-1", "never"):
        assert "node-1 has no UUID" in answers[asked].why  # type: ignore[union-attr]
    lab.heal()
    power = "<path>runtime.powerState</path>"
    fault = '<fault xsi:type="NoPermission"><privilegeId>System.Read</privilegeId></fault>'
    missing = f"<missingSet>{power}<fault>{fault}<localizedMessage/></fault></missingSet></objects>"
    lab.edit("RetrievePropertiesEx", ("</objects>", missing))
    reported = await cloud.why(node_of(hidden))
    assert reported.endswith("of lab: runtime.powerState cannot be read")
    assert "cannot be read" in await cloud.why(ABSENT)


async def test_a_login_that_may_not_see_all_proves_nothing(lab: Lab, cloud: Started) -> None:
    """VS21: an empty inventory, and rights on nothing; the rights are an answer of ours."""
    (made,) = lab.create("node-1")
    asked = node_of(made)
    lab.change("node-1", delete=True)
    lab.edit("HasPrivilege", IS_GRANTED)
    reported = await cloud.why(asked)
    assert "lab: System.View on the root folder, propagated" in reported
    assert cloud.instances
    missing = await cloud.instances.missing_permissions()  # type: ignore[attr-defined]
    assert missing == [
        "lab: System.View on the root folder, propagated",
        "lab: System.Read on the root folder, propagated",
    ]


@pytest.mark.parametrize("written", ["DC1", "/F0/DC1", "F0/DC1", "Datacenter:{}", "%44C1"], ids=str)
async def test_datacenters_are_named_in_many_ways(lab: Lab, written: str) -> None:
    """VS53, VS54, VS55: by name, by path, by ID; those in folders are found as well."""
    (made,) = lab.create("node-1")
    everywhere = await Started(lab.config()).start()
    await everywhere.known(node_of(made))
    reader = everywhere.instances._readers["lab"]  # type: ignore[union-attr]
    ids = {one.name: one.moid for one in (await reader.read()).datacenters}
    await everywhere.close()
    given = [written.format(ids["DC1"])]
    elsewhere = await Started(lab.config(datacenters=given)).start()
    assert "no machine" in await elsewhere.why(node_with("node-1")), "it is in DC0"
    assert isinstance(await elsewhere.describe_one(ABSENT), Gone)
    # VS52: a machine that moved there is there.
    await elsewhere.known(node_of(made))


async def test_a_datacenter_that_is_not_seen_is_a_doubt(lab: Lab) -> None:
    """VS21."""
    (made,) = lab.create("node-1")
    cloud = await Started(lab.config(datacenters=["DC0", "DC9"])).start()
    await cloud.known(node_of(made))
    reported = "lab: datacenter DC9 is not there, or may not be seen"
    assert await cloud.why(ABSENT) == reported


async def test_a_vcenter_that_is_down_takes_no_other_along(lab: Lab, other: Lab) -> None:
    """VS22, VS23: and nobody is gone, or taken for another, because of it."""
    (here,), (there,) = lab.create("node-1"), other.create("node-2")
    cloud = await Started(config_of({"a": lab.section(), "b": other.section()})).start()
    nodes = node_of(here), node_of(there)
    assert all(isinstance(one, Instance) for one in (await cloud.describe(*nodes)).values())
    assert isinstance(await cloud.describe_one(ABSENT), Gone)
    other.fail(status=503)
    answers = await cloud.describe(*nodes, ABSENT)
    assert isinstance(answers["node-1"], Instance)
    for asked in (nodes[1], ABSENT, node_with("node-1"), node_with("node-9")):
        assert "b: ListInventory: 503" in await cloud.why(asked)
    assert isinstance(await cloud.describe_one(node_of(here, is_new=True)), Instance)


async def test_a_machine_that_the_index_has_is_not_gone(lab: Lab, cloud: Started) -> None:
    """The list is short: an answer of ours."""
    (made,) = lab.create("node-1")
    other = made["uuid"].replace("43", "44", 1)
    lab.edit("RetrievePropertiesEx", (made["uuid"], other))
    reported = await cloud.why(node_of(made))
    assert reported == f"lab has {made['moref']} with UUID {made['uuid']}, and does not list it"


async def test_a_machine_whose_managed_object_is_there_is_not_gone(
    lab: Lab, cloud: Started
) -> None:
    """VS52: as one with another UUID from now on."""
    (made,) = lab.create("node-1")
    await cloud.known(node_of(made))
    lab.change("node-1", uuid="44000001-ab00-4c00-8000-000000000000")
    reported = await cloud.why(node_of(made))
    assert (
        reported == f"lab has {made['moref']}, which had UUID {made['uuid']}, and does not list it"
    )


@pytest.mark.parametrize(
    ("match", "text"),
    [
        ("FindAllByUuid", ""),
        ("HasPrivilege", ""),
        ("HasPrivilege", "<Envelope><Body><HasPrivilegeOnEntitiesResponse/></Body></Envelope>"),
        ("FindAllByUuid", "<Envelope><Body><OtherResponse/></Body></Envelope>"),
        ("FindAllByUuid", "<Envelope><Body><FindAllByUuidResponse>"),
        ("RetrieveProp", "<Envelope><Body><RetrievePropertiesExResponse/></Body></Envelope>"),
    ],
)
async def test_an_answer_that_is_none_is_no_proof(
    lab: Lab, cloud: Started, match: str, text: str
) -> None:
    lab.fail(match, status=200, text=text)
    try:
        answer = await cloud.describe_one(ABSENT)
    except CloudError:
        return
    assert not isinstance(answer, Gone)
