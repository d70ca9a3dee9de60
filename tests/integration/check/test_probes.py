"""Probes that do more than one read: of a Lease, of the cloud, of this machine."""

import itertools
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ccm.checks.cloud import read_cloud, sample_nodes, start_provider
from ccm.checks.context import CheckContext
from ccm.checks.host import observe_runtime, unusable_directory
from ccm.checks.leaders import observe_lease
from ccm.cloud import registry
from ccm.cloud.dry_run import WouldWrite
from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.cloud.proof import NO_SUCH_NODE
from ccm.model.objects import Node
from ccm.settings import Settings
from tests.unit.api_server import json_answer, serving

OURS = re.compile("ours://.*")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def lease(seconds_ago: float, holder: str = "one") -> dict[str, object]:
    renewed = (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"name": "ccm"}, "spec": spec}


@pytest.mark.parametrize(
    ("leases", "is_alive"),
    [
        pytest.param([lease(3.0)], True, id="one who renewed just now"),
        pytest.param([lease(600.0), lease(598.0)], True, id="one whose clock is wrong, and renews"),
        pytest.param([lease(600.0), lease(600.0)], False, id="one who does not renew"),
        pytest.param([lease(600.0, holder="")], False, id="one who gave it back"),
    ],
)
async def test_a_holder_is_alive_who_renewed_or_renews(
    leases: list[dict[str, object]], is_alive: bool
) -> None:
    async with serving(*map(json_answer, leases)) as (server, kube):
        found = await observe_lease(kube, "/lease", NOW.timestamp, renewal_wait=0.01)
        assert found
        assert (found.is_alive, len(server.requests)) == (is_alive, len(leases))


def node(number: int, provider_id: str) -> Node:
    return Node({"metadata": {"name": f"n{number}"}, "spec": {"providerID": provider_id}})


def test_machines_are_asked_about_by_name_and_by_id_apart_and_others_not_at_all() -> None:
    ids = itertools.cycle(["", "ours://1", "theirs://1"])
    nodes = [node(number, next(ids)) for number in range(30)]
    nameless, known = sample_nodes(nodes, OURS, 4)
    assert [each.provider_id for each in nameless] == [""] * 4
    assert [each.provider_id for each in known] == ["ours://1"] * 4
    assert sample_nodes([], OURS, 4) == [[NO_SUCH_NODE]]


class Meddler(CloudProvider):
    """A provider that writes when it is asked."""

    name, provider_ids, quotas = "meddler", re.compile("meddler://.*"), {}
    has_cluster_id = True
    wrote = False

    async def initialize(self, context: ProviderContext) -> None:
        self._gate = context.gate

    async def close(self) -> None: ...

    async def describe(self, nodes: Sequence[Node]) -> object:
        return await self._gate.call("CreateTags", "write", self._write, is_write=True)

    async def _write(self) -> None:
        self.wrote = True


async def test_a_provider_that_would_write_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud: Any = Meddler()
    monkeypatch.setitem(registry._in_code, "meddler", lambda: cloud)
    context = CheckContext(Settings(cloud_provider="meddler"), {})
    await start_provider(context)
    calls = context.cloud_calls
    read = await read_cloud(calls, "instances", "machines", cloud.describe, [NO_SUCH_NODE])
    assert isinstance(read.error, WouldWrite)
    assert not cloud.wrote
    assert not calls


def test_observing_a_runtime_directory_makes_nothing(tmp_path: Path) -> None:
    seen = observe_runtime(str(tmp_path / "a" / "b"))
    assert (seen.holder, seen.status) == ("", None)
    assert not [*unusable_directory("--runtime-dir", seen.directory, allow_link=False)]
    assert list(tmp_path.iterdir()) == []


def test_a_link_will_do_for_state_and_not_for_sockets(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there")
    assert not [*unusable_directory("--state-dir", link)]
    [found] = unusable_directory("--runtime-dir", link, allow_link=False)
    assert found.message.endswith("link is not a directory")
    (tmp_path / "there").rmdir()
    [found] = unusable_directory("--state-dir", link)
    assert found.message.endswith("link is not a directory")
