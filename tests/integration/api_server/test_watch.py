"""Watches: what they show, in which order, and how they end."""

import asyncio
from pathlib import Path

import pytest

from ccm.sandbox.kubernetes.server import SandboxServer
from tests.integration.api_server.client import LEASES, NODES, Api
from tests.integration.api_server.conftest import client_of
from tests.support.deadlines import timeout
from tests.support.kube.cluster import RealCluster


async def test_a_watch_from_a_version_shows_each_change_after_it_in_order(api: Api) -> None:
    start = (await api.get(NODES)).version
    path = (await api.new(NODES)).path
    await api.merge(path, {"metadata": {"labels": {"a": "b"}}})
    await api.delete(path)
    async with api.watch(NODES, resourceVersion=start) as watch:
        events = [await watch.next() for _ in range(3)]
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        later = await api.new(NODES)
        assert (await waiting).seen == ("ADDED", later.name)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert events[0].object["kind"] == "Node"
    assert events[0].object["apiVersion"] == "v1"


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_from_nowhere_begins_with_what_is_there(
    api: Api, query: dict[str, str]
) -> None:
    labels = {"case": api.new_name()}
    names = [(await api.new(NODES, metadata={"labels": labels})).name for _ in range(2)]
    selector = f"case={labels['case']}"
    async with api.watch(NODES, labelSelector=selector, **query) as watch:
        assert sorted([(await watch.next()).seen for _ in names]) == [
            ("ADDED", name) for name in names
        ]
        await api.delete(f"{NODES}/{names[0]}")
        assert (await watch.next()).seen == ("DELETED", names[0])


async def test_entering_and_leaving_a_selector_is_added_and_deleted(api: Api) -> None:
    node = await api.new(NODES)
    case = api.new_name()
    query = {"labelSelector": f"case={case}", "resourceVersion": node.version}
    async with api.watch(NODES, **query) as watch:
        await api.merge(node.path, {"metadata": {"labels": {"case": case}}})
        await api.merge(node.path, {"metadata": {"labels": {"more": "x"}}})
        left = await api.merge(node.path, {"metadata": {"labels": {"case": None}}})
        events = [await watch.next() for _ in range(3)]
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    last = events[-1].object["metadata"]
    assert last["labels"]["case"] == case
    assert last["resourceVersion"] == left.version


async def test_a_watch_of_one_namespace_or_one_name_shows_no_other(api: Api) -> None:
    start = (await api.get(NODES)).version
    await api.new(LEASES.replace("/default/", "/kube-system/"))
    first, second = await api.new(LEASES), await api.new(LEASES)
    async with api.watch(LEASES, resourceVersion=start) as watch:
        assert (await watch.next()).seen == ("ADDED", first.name)
    query = {"fieldSelector": f"metadata.name={second.name}", "resourceVersion": start}
    async with api.watch(LEASES, **query) as watch:
        assert (await watch.next()).seen == ("ADDED", second.name)


async def test_a_bookmark_tells_of_progress_two_seconds_before_the_timeout(api: Api) -> None:
    selector = f"case={api.new_name()}"
    seconds = 2 + round(timeout(0.5))  # so long does what is told of have
    options = {"allowWatchBookmarks": "true", "timeoutSeconds": seconds, "labelSelector": selector}
    start = (await api.get(NODES)).version
    async with api.watch(NODES, resourceVersion=start, **options) as watch:
        node = await api.new(NODES)
        events = await watch.rest()
    assert {event.type for event in events} == {"BOOKMARK"}
    bookmark = events[-1].object
    assert bookmark["kind"] == "Node"
    assert int(bookmark["metadata"]["resourceVersion"]) >= int(node.version)


async def test_a_watch_may_begin_with_its_initial_events_and_a_bookmark(api: Api) -> None:
    labels = {"case": api.new_name()}
    node = await api.new(NODES, metadata={"labels": labels})
    async with api.watch(
        NODES,
        labelSelector=f"case={labels['case']}",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as watch:
        assert (await watch.next()).seen == ("ADDED", node.name)
        end = await watch.next()
    assert end.type == "BOOKMARK"
    assert end.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


# --- history that is compacted


async def compact(server: RealCluster | SandboxServer) -> None:
    if isinstance(server, SandboxServer):
        server.compact()
    else:
        await asyncio.to_thread(server.kill_apiserver)
        await asyncio.to_thread(server.start_apiserver)


async def test_a_watch_from_a_compacted_version_is_a_200_with_an_error_410(
    server: RealCluster | SandboxServer, tmp_path: Path
) -> None:
    async with client_of(server, tmp_path) as api:
        version = (await api.new(NODES)).version
        await api.new(NODES)
        await compact(server)
        async with api.watch(NODES, resourceVersion=version) as watch:
            [event] = await watch.rest()
    assert event.type == "ERROR"
    status = event.object
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {version} (")
