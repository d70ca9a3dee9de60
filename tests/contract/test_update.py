"""What a PUT changes: versions, conflicts, and fields that may not change."""

from tests.contract.client import CONFIG_MAPS, LEASES, NODES, SERVICES, Api


async def test_every_write_raises_the_version(api: Api) -> None:
    node = await api.new(NODES)
    changed = await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}})
    assert int(changed.version) > int(node.version)


async def test_a_write_that_changes_nothing_keeps_the_version(api: Api) -> None:
    node = await api.new(NODES, metadata={"labels": {"a": "b"}})
    patched = await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}})
    put = await api.replace(node.path, node.body)
    assert (patched.version, put.version) == (node.version, node.version)


async def test_a_stale_version_is_409_conflict(api: Api) -> None:
    node = await api.new(NODES)
    await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}})
    reply = await api.replace(node.path, node.body)
    assert reply.refusal == (409, "Conflict")
    assert reply.body["details"] == {"name": node.name, "kind": "nodes"}
    assert "the object has been modified" in reply.body["message"]


async def test_without_a_version_a_put_is_unconditional(api: Api) -> None:
    node = await api.new(NODES)
    await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}})
    body = {"metadata": {"name": node.name, "labels": {"c": "d"}}}
    reply = await api.replace(node.path, body)
    assert reply.status == 200
    assert reply.body["metadata"]["labels"] == {"c": "d"}
    assert reply.body["metadata"]["uid"] == node.body["metadata"]["uid"]


async def test_a_lease_must_be_put_with_a_version(api: Api) -> None:
    lease = await api.new(LEASES)
    reply = await api.replace(lease.path, {"metadata": {"name": lease.name}})
    assert reply.refusal == (422, "Invalid")
    assert reply.causes == {"metadata.resourceVersion Invalid"}


async def test_a_put_creates_a_service_or_a_lease_but_no_node_and_no_config_map(api: Api) -> None:
    name = api.new_name()
    body = {"metadata": {"name": name}}
    service = {**body, "spec": {"ports": [{"port": 80}]}}
    assert (await api.replace(f"{SERVICES}/{name}", service)).status == 201
    assert (await api.replace(f"{LEASES}/{name}", body)).status == 201
    assert (await api.replace(f"{NODES}/{name}", body)).refusal == (404, "NotFound")
    assert (await api.replace(f"{CONFIG_MAPS}/{name}", body)).refusal == (404, "NotFound")


async def test_the_name_must_be_that_of_the_path(api: Api) -> None:
    path = (await api.new(NODES)).path
    assert (await api.replace(path, {"metadata": {"name": "other"}})).refusal[0] == 400
    assert (await api.replace(path, {"metadata": {}})).refusal[0] == 400
    assert (await api.merge(path, {"metadata": {"name": "other"}})).refusal[0] == 400


async def test_another_uid_is_409(api: Api) -> None:
    node = await api.new(NODES)
    put = await api.replace(node.path, {"metadata": {"name": node.name, "uid": "other"}})
    assert put.refusal == (409, "Conflict")


async def test_the_time_of_creation_is_not_for_clients(api: Api) -> None:
    node = await api.new(NODES)
    body = {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}
    changed = await api.merge(node.path, body)
    stamp = node.body["metadata"]["creationTimestamp"]
    assert changed.body["metadata"]["creationTimestamp"] == stamp


async def test_a_dry_run_of_a_patch_shows_it_and_stores_nothing(api: Api) -> None:
    node = await api.new(NODES)
    reply = await api.merge(node.path, {"metadata": {"labels": {"a": "b"}}}, dryRun="All")
    assert reply.body["metadata"]["labels"] == {"a": "b"}
    assert (await api.get(node.path)).version == node.version
