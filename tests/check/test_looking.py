"""Gathering of facts where it takes more than one look."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ccm.checks.look.cloud import NOBODY, Reader, samples, started
from ccm.checks.look.lease import look_at_lease
from ccm.checks.look.runtime import look_at_directory, look_at_runtime
from ccm.cloud import registry
from ccm.cloud.interface import ProviderContext
from ccm.cloud.dry_run import WouldWrite
from ccm.model.node import Node
from ccm.settings import Settings
from tests.unit.api_server import json_answer, serving

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def lease(seconds_ago: float, holder: str = "one") -> dict[str, object]:
    renewed = (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"name": "ccm"}, "spec": spec}


async def look(*seen: dict[str, object]) -> tuple[bool, int]:
    """Whether the holder counts as alive, and how often it was looked at."""
    async with serving(*map(json_answer, seen)) as (server, kube):
        found = await look_at_lease(kube, "/lease", NOW.timestamp, patience=0.01)
        assert found
        return found.is_alive, len(server.requests)


async def test_a_holder_who_renewed_just_now_is_alive() -> None:
    assert await look(lease(3.0)) == (True, 1)


async def test_a_holder_whose_clock_is_wrong_is_alive_when_it_renews() -> None:
    assert await look(lease(600.0), lease(598.0)) == (True, 2)


async def test_a_holder_who_does_not_renew_is_dead() -> None:
    assert await look(lease(600.0), lease(600.0)) == (False, 2)


async def test_a_lease_that_was_given_back_needs_no_second_look() -> None:
    assert await look(lease(600.0, holder="")) == (False, 1)


def node(number: int, provider_id: str) -> Node:
    return Node({"metadata": {"name": f"n{number}"}, "spec": {"providerID": provider_id}})


def test_machines_are_asked_about_by_name_and_by_id_apart_and_others_not_at_all() -> None:
    ids = itertools.cycle(["", "ours://1", "theirs://1"])
    nodes = [node(number, next(ids)) for number in range(30)]
    nameless, known = samples(nodes, "ours", 4)
    assert [each.provider_id for each in nameless] == [""] * 4
    assert [each.provider_id for each in known] == ["ours://1"] * 4
    assert samples([], "ours", 4) == [[NOBODY]]


class Meddler:
    """A provider that writes when it is asked."""

    name = scheme = "meddler"
    has_cluster_id = True
    wrote = False

    async def initialize(self, context: ProviderContext) -> None:
        self._gate = context.gate

    async def describe(self, nodes: Sequence[Node]) -> object:
        return await self._gate.call("CreateTags", "write", self._write)

    async def _write(self) -> None:
        self.wrote = True


async def test_a_provider_that_would_write_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud: Any = Meddler()
    monkeypatch.setitem(registry._in_code, "meddler", lambda: cloud)
    begun = await started(Settings(cloud_provider="meddler"))
    assert (begun.faults, begun.bug) == ((), "")
    reader = Reader(begun.purse)
    await reader.ask("instances", "machines", cloud.describe, [NOBODY])
    assert isinstance(reader.reads[0].error, WouldWrite)
    assert not cloud.wrote
    assert not begun.purse.spent


def test_looking_at_a_runtime_directory_makes_nothing(tmp_path: Path) -> None:
    seen = look_at_runtime(str(tmp_path / "a" / "b"))
    assert (seen.directory.found, seen.holder, seen.status) == (tmp_path, "", None)
    assert list(tmp_path.iterdir()) == []


def test_a_link_will_do_for_state_and_not_for_sockets(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there")
    assert look_at_directory(link).is_directory
    assert not look_at_runtime(str(link)).directory.is_directory
    (tmp_path / "there").rmdir()
    assert not look_at_directory(link).is_directory
