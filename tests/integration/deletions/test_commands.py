"""What people type and see: `ccm-supervisor deletions` and the flags behind it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ccm.bus.control import ControlServer
from ccm.cli.main import main
from ccm.decide.deletion import DeletionPolicy
from ccm.supervisor.deletions import policy_of
from ccm.supervisor.freeze import DeletionCommands
from tests.unit.settings.writing import settings

from .cluster import POLICY, Cluster


def test_the_policy_is_what_the_flags_say() -> None:
    assert policy_of(settings()) == replace(POLICY, confirmation=30.0)
    words = ("--node-deletion-limit=3", "--node-monitor-period=1m", "--node-vanish-share=0.5")
    more = ("--node-deletion-confirmation-period=0",)
    assert policy_of(settings(*words, *more)) == DeletionPolicy(60.0, 0.0, 3, 0.0, 600.0, 0.5)


async def typed(cluster: Cluster, runtime: Path, *words: str, standby: str = "") -> Result:
    """What `ccm-supervisor deletions …` prints, over a real control socket."""

    async def reply(request: dict[str, Any]) -> Mapping[str, Any]:
        assert request["command"] == "deletions"
        return await DeletionCommands(cluster.governor, None, lambda: standby).answer(request)

    server = ControlServer(runtime / "control.sock", reply)
    await server.start()
    try:
        return await asyncio.to_thread(CliRunner().invoke, main, ["deletions", *words])
    finally:
        server.close()


async def test_a_person_sees_and_switches_deletions(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    cluster.fill(3).kill("n0").report(["n0"])
    here = f"--runtime-dir={tmp_path}"
    shown = await typed(cluster, tmp_path, here)
    assert shown.output.splitlines() == [
        "allowed",
        "budget: 10 of 10 left in 10m",
        "since the start: 1 proposed, 0 permitted",
        "  n0  not yet: not-confirmed, not before 5s from now",
    ]
    frozen = await typed(cluster, tmp_path, "freeze", "--reason", "audit", here)
    assert "no node is deleted" in frozen.output
    assert "frozen by ada since" in (await typed(cluster, tmp_path, here)).output.splitlines()[0]
    allowed = await typed(cluster, tmp_path, here, "allow")
    assert allowed.exit_code == 0, allowed.output
    assert cluster.status()["frozen"] is None


async def test_a_freeze_that_is_not_kept_is_reported_as_a_failure(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.path.unlink()
    cluster.path.mkdir()
    result = await typed(cluster, tmp_path, "freeze", f"--runtime-dir={tmp_path}")
    assert result.exit_code == 2
    assert "a restart may forget it" in result.output
    shown = await typed(cluster, tmp_path, f"--runtime-dir={tmp_path}")
    assert "stopped: the state file" in shown.output


async def test_a_standby_says_that_it_does_not_delete(cluster: Cluster, tmp_path: Path) -> None:
    here, standby = f"--runtime-dir={tmp_path}", "stands by; b leads"
    shown = await typed(cluster, tmp_path, here, standby=standby)
    assert shown.output.startswith("this replica deletes nothing (stands by; b leads)")
    allowed = await typed(cluster, tmp_path, "allow", here, standby=standby)
    assert "on who leads: stands by; b leads" in allowed.output


async def test_who_spent_the_budget_is_shown(cluster: Cluster, tmp_path: Path) -> None:
    cluster.fill(3).kill("n0").report(["n0"])
    cluster.advance().report(["n0"])
    shown = await typed(cluster, tmp_path, f"--runtime-dir={tmp_path}")
    assert "spent on: n0 (1×)" in shown.output.splitlines()


def test_an_unknown_action_says_which_there_are(cluster: Cluster) -> None:
    assert "show, freeze or allow" in cluster.ask("melt")["error"]
