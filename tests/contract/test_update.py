"""What a PUT changes: versions, conflicts, and fields that may not change."""

from tests.contract.client import CONFIG_MAPS, LEASES, NODES, SERVICES, Api


async def test_every_write_raises_the_version(api: Api) -> None:
    node = await api.new(NODES)
    changed = await api.merge(f"{NODES}/{node.name}", {"metadata": {"labels": {"a": "b"}}})
    assert int(changed.version) > int(node.version)


async def test_a_write_that_changes_nothing_keeps_the_version(api: Api) -> None:
    node = await api.new(NODES, metadata={"labels": {"a": "b"}})
    path = f"{NODES}/{node.name}"
    patched = await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    put = await api.replace(path, node.body)
    assert (patched.version, put.version) == (node.version, node.version)


async def test_a_stale_version_is_409_conflict(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    reply = await api.replace(path, node.body)
    assert reply.refusal == (409, "Conflict")
    assert reply.body["details"] == {"name": node.name, "kind": "nodes"}
    assert "the object has been modified" in reply.body["message"]


async def test_without_a_version_a_put_is_unconditional(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    body = {"metadata": {"name": node.name, "labels": {"c": "d"}}}
    reply = await api.replace(path, body)
    assert reply.status == 200
    assert reply.body["metadata"]["labels"] == {"c": "d"}
    assert reply.body["metadata"]["uid"] == node.body["metadata"]["uid"]


async def test_a_lease_must_be_put_with_a_version(api: Api) -> None:
    lease = await api.new(LEASES)
    reply = await api.replace(f"{LEASES}/{lease.name}", {"metadata": {"name": lease.name}})
    assert reply.refusal == (422, "Invalid")
    assert reply.causes == {("metadata.resourceVersion", "FieldValueInvalid")}


async def test_a_put_creates_a_service_or_a_lease_but_no_node_and_no_config_map(api: Api) -> None:
    name = api.new_name()
    body = {"metadata": {"name": name}}
    service = {**body, "spec": {"ports": [{"port": 80}]}}
    assert (await api.replace(f"{SERVICES}/{name}", service)).status == 201
    assert (await api.replace(f"{LEASES}/{name}", body)).status == 201
    assert (await api.replace(f"{NODES}/{name}", body)).refusal == (404, "NotFound")
    assert (await api.replace(f"{CONFIG_MAPS}/{name}", body)).refusal == (404, "NotFound")


async def test_the_name_must_be_that_of_the_path(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    assert (await api.replace(path, {"metadata": {"name": "other"}})).refusal[0] == 400
    assert (await api.replace(path, {"metadata": {}})).refusal[0] == 400
    assert (await api.merge(path, {"metadata": {"name": "other"}})).refusal[0] == 400


async def test_another_uid_is_409_in_a_put_and_422_in_a_patch(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    put = await api.replace(path, {"metadata": {"name": node.name, "uid": "other"}})
    patched = await api.merge(path, {"metadata": {"uid": "other"}})
    assert put.refusal == (409, "Conflict")
    assert patched.causes == {("metadata.uid", "FieldValueInvalid")}


async def test_the_time_of_creation_and_of_deletion_are_not_for_clients(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    created = await api.merge(path, {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}})
    deleted = await api.merge(path, {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})
    stamp = node.body["metadata"]["creationTimestamp"]
    assert created.body["metadata"]["creationTimestamp"] == stamp
    assert deleted.causes == {("metadata.deletionTimestamp", "FieldValueInvalid")}


async def test_the_provider_id_may_be_set_once(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    assert (await api.merge(path, {"spec": {"providerID": "x://1"}})).status == 200
    assert (await api.merge(path, {"spec": {"providerID": "x://1"}})).status == 200
    for other in ("x://2", None):
        reply = await api.merge(path, {"spec": {"providerID": other}})
        assert reply.refusal == (422, "Invalid")
        assert reply.causes == {("spec.providerID", "FieldValueForbidden")}


async def test_the_pod_cidr_fills_in_its_list_and_may_be_set_once(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    reply = await api.merge(path, {"spec": {"podCIDR": "10.1.0.0/24"}})
    assert reply.body["spec"]["podCIDRs"] == ["10.1.0.0/24"]
    reply = await api.merge(path, {"spec": {"podCIDR": "10.2.0.0/24"}})
    assert reply.causes == {("spec.podCIDRs", "FieldValueForbidden")}


async def test_the_list_of_pod_cidrs_fills_in_the_first(api: Api) -> None:
    node = await api.new(NODES, spec={"podCIDRs": ["10.1.0.0/24", "fd00::/64"]})
    assert node.body["spec"]["podCIDR"] == "10.1.0.0/24"


async def test_an_unreadable_pod_cidr_is_422(api: Api) -> None:
    node = await api.new(NODES)
    reply = await api.merge(f"{NODES}/{node.name}", {"spec": {"podCIDR": "10.1"}})
    assert reply.causes == {("spec.podCIDRs[0]", "FieldValueInvalid")}


async def test_a_false_unschedulable_is_left_out(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    held = await api.merge(path, {"spec": {"unschedulable": True}})
    freed = await api.merge(path, {"spec": {"unschedulable": False}})
    assert held.body["spec"]["unschedulable"] is True
    assert "unschedulable" not in freed.body["spec"]


async def test_a_dry_run_of_a_patch_shows_it_and_stores_nothing(api: Api) -> None:
    node = await api.new(NODES)
    path = f"{NODES}/{node.name}"
    reply = await api.merge(path, {"metadata": {"labels": {"a": "b"}}}, dryRun="All")
    assert reply.body["metadata"]["labels"] == {"a": "b"}
    assert (await api.get(path)).version == node.version
