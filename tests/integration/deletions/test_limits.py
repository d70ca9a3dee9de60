"""How many Nodes may go: a window has a limit, and a mass gone at once stops every deletion."""

from dataclasses import replace
from pathlib import Path

import pytest

from .cluster import POLICY, Cluster, names


def test_a_permit_is_good_once_and_another_needs_two_new_answers(cluster: Cluster) -> None:
    cluster.fill(3).kill("n0").report(["n0"])
    assert cluster.advance().report(["n0"]) == ["n0"]
    assert cluster.report(["n0"]) == []
    assert cluster.advance().report(["n0"]) == []
    assert cluster.advance().report(["n0"]) == ["n0"]
    assert cluster.status()["budget"]["left"] == 9


def test_a_deletion_that_failed_is_not_stopped_by_its_own_permit(tmp_path: Path) -> None:
    cluster = (
        Cluster(tmp_path / "deletions.json", replace(POLICY, limit=1)).fill(9).kill("n0", "n1")
    )
    cluster.report(["n0"])
    assert cluster.advance().report(["n0"]) == ["n0"]
    cluster.advance().report(["n0", "n1"])
    assert cluster.advance().report(["n0", "n1"]) == ["n0"]


def test_a_kubelet_that_registers_again_each_time_spends_one_deletion(cluster: Cluster) -> None:
    cluster.fill(100).kill("n0", "n1").report(["n0"])
    for number in range(12):
        assert cluster.advance().report(["n0"]) == ["n0"], number
        cluster.change("n0", uid=f"again-{number}")
        cluster.advance().report(["n0"])
    cluster.report(["n1"])
    assert cluster.advance().report(["n1"]) == ["n1"]
    budget = cluster.status()["budget"]
    assert budget["left"] == 8
    assert [(one["node"], one["times"]) for one in budget["spent"]] == [("n1", 1), ("n0", 12)]


def test_no_more_nodes_go_in_a_window_than_the_limit(cluster: Cluster) -> None:
    cluster.fill(100).kill(*names(12)).report(names(12))
    first = cluster.advance().report(names(12))
    assert len(first) == 10
    for name in first:
        del cluster.nodes[name]
    left = [name for name in names(12) if name not in first]
    assert cluster.advance().report(left) == []
    assert cluster.why(left[0]) == "budget"
    assert cluster.advance(595.0).report(left) == []  # a silence on the way
    assert cluster.advance().report(left) == left


def test_nodes_of_ever_new_names_let_an_older_one_go_first(tmp_path: Path) -> None:
    """A kubelet that may register any name had one wait for all that it had registered."""
    policy = replace(POLICY, limit=1, limit_percent=0.0)
    cluster = Cluster(tmp_path / "deletions.json", policy).fill(40)
    for number, name in enumerate(names(40)):
        cluster.change(name, created=f"2026-01-01T00:{number:02}:00Z")
    flood = names(4, first=36)
    cluster.kill(*flood).report(flood)
    assert cluster.advance().report(flood) == ["n36"]
    waiting = [*flood[1:], "n0"]
    cluster.kill("n0").advance().report(waiting)
    seconds = 0.0
    while not (permitted := cluster.advance().report(waiting)):
        seconds += 5.0
    assert permitted == ["n0"]
    assert seconds <= policy.window


def test_permits_of_the_last_window_count_as_new_after_a_restart(cluster: Cluster) -> None:
    cluster.fill(100).kill(*names(12)).report(names(12))
    gone = cluster.advance().report(names(12))
    left = [name for name in names(12) if name not in gone]
    cluster.advance(500.0).restart()
    assert cluster.status()["budget"]["left"] == 0
    cluster.advance(500.0).report(left)
    assert cluster.advance().report(left) == []
    cluster.advance(95.0).report(left)
    assert cluster.advance().report(left) == left


def test_permits_that_are_over_do_not_come_back_with_a_restart(cluster: Cluster) -> None:
    cluster.fill(100).kill("n0").report(["n0"])
    assert cluster.advance().report(["n0"]) == ["n0"]
    cluster.advance(600.0).report()
    cluster.restart()
    assert cluster.status()["budget"]["left"] == 10


def shards_report(cluster: Cluster, *gone: list[str]) -> list[str]:
    """One pass of each worker; what they were permitted together."""
    return [
        name
        for number, part in enumerate(gone)
        for name in cluster.report(part, worker=f"node-{number}.1")
    ]


def test_many_gone_at_once_over_all_workers_hold_every_deletion(cluster: Cluster) -> None:
    cluster.fill(100).kill(*names(31))
    for _ in range(20):
        assert shards_report(cluster.advance(), names(16), names(15, first=16)) == []
    assert cluster.why("n0") == "many-vanished"
    assert cluster.status()["counts"]["held"] == 31
    assert [reason for reason, _ in cluster.warnings] == ["NodeDeletionsHeld"]
    assert "31 of 100" in cluster.warnings[0][1]


def test_ready_nodes_that_the_cloud_calls_gone_count_as_well(cluster: Cluster) -> None:
    """CT3: half of the machines are lost, and one kubelet is silent for another reason."""
    cluster.fill(10).kill("n0").report(names(5))
    for _ in range(20):
        assert cluster.advance().report(names(5)) == []
    assert (verdict := cluster.governor.verdict("n0"))
    assert verdict["reason"] == "many-vanished"
    assert "5 of 10 nodes vanished from the cloud, 4 of them Ready" in cluster.warnings[0][1]


def test_few_ready_nodes_that_the_cloud_calls_gone_hold_deletions_while_they_are_ready(
    cluster: Cluster,
) -> None:
    cluster.fill(100).kill("n0").report(["n0"])
    for _ in range(12):
        assert cluster.advance().report(names(3)) == []
        assert cluster.why("n0") == "ready-nodes-gone"
    assert cluster.warnings == [], "their kubelets may have ended a moment ago"
    cluster.advance().report(names(3))
    assert "3 of 100 nodes vanished from the cloud, 2 of them Ready" in cluster.warnings[0][1]
    cluster.kill("n2")
    for _ in range(3):
        assert cluster.advance().report(names(3)) == []
    cluster.advance().report(names(3))
    assert cluster.advance().report(names(3)) == ["n0", "n2"], "one Node may be a case of its own"


def test_machines_that_end_all_the_time_hold_up_no_deletion(cluster: Cluster) -> None:
    """Each Node is Ready for 50 s after its machine ended."""
    cluster.fill(200)
    died = {f"n{number}": cluster.now + 5.0 * number for number in range(60)}
    deleted = dict[str, float]()
    while cluster.now < 1300.0:
        gone = [name for name, at in died.items() if at <= cluster.now and name not in deleted]
        cluster.kill(*(name for name in gone if died[name] + 50.0 <= cluster.now))
        for name in cluster.report(gone):
            deleted[name] = cluster.now
            del cluster.nodes[name]
        cluster.advance()
    assert len(deleted) > 10, "the budget of the window is 10 % of all"
    assert all(at - died[name] < 120.0 for name, at in deleted.items())


def test_nodes_that_were_never_a_machine_hold_no_deletion(cluster: Cluster) -> None:
    cluster.fill(6).kill(*names(6))
    for name in names(5, first=1):
        cluster.change(name, has_provider_id=False)
    cluster.report(names(6))
    assert cluster.advance().report(names(6)) == ["n0"]
    del cluster.nodes["n0"], cluster.nodes["n1"]  # a person deletes one of them
    cluster.advance().report(names(4, first=2))
    assert cluster.status()["vanished"] == 1, "n0, which was a machine"
    assert cluster.warnings == []


def test_the_hold_ends_after_healthy_passes_and_needs_new_answers(cluster: Cluster) -> None:
    cluster.fill(100).kill(*names(31))
    shards_report(cluster, names(16), names(15, first=16))
    for _ in range(3):
        assert cluster.status()["held"]
        assert cluster.advance().report(["n0"], not_gone=names(15, first=1)) == []
        cluster.report(not_gone=names(15, first=16), worker="node-1.1")
    assert cluster.status()["held"] == ""
    assert shards_report(cluster.advance(), ["n0"], []) == []
    assert shards_report(cluster.advance(), ["n0"], []) == ["n0"]


def test_a_worker_that_crashes_does_not_end_the_hold(cluster: Cluster) -> None:
    cluster.fill(100).kill(*names(31))
    shards_report(cluster, names(16), names(15, first=16))
    cluster.governor.forget("node-1.1")
    for _ in range(4):
        assert cluster.advance().report(names(16)) == []
    assert cluster.status()["held"]


def test_allow_accepts_what_is_gone_now_and_doubts_what_vanishes_later(cluster: Cluster) -> None:
    cluster.fill(100).kill(*names(90)).report(names(40))
    cluster.ask("allow")
    assert cluster.advance().report(names(40)) == []
    assert len(cluster.advance().report(names(40))) == 10
    cluster.advance().report(names(80))
    assert cluster.advance().report(names(80)) == []
    assert [reason for reason, _ in cluster.warnings] == ["NodeDeletionsHeld"] * 2


def test_allow_accepts_ready_nodes_for_as_long_as_they_are_there(cluster: Cluster) -> None:
    """Two kubelets that name machines which never were held each deletion, after each `allow`."""
    cluster.fill(100).kill("n0").report(["n0"])
    for _ in range(14):
        cluster.advance().report(names(3))
    assert cluster.status()["held"]
    cluster.ask("allow")
    cluster.advance().report(names(3))
    assert cluster.advance().report(names(3)) == ["n0"]
    for name in names(10, first=10):
        cluster.advance(600.0).kill(name).report([name])
        assert cluster.advance().report(["n1", "n2", name]) == [name]
    cluster.change("n1", uid="again")
    cluster.change("n2", uid="again")
    cluster.advance(600.0).kill("n3").report(["n3"])
    assert cluster.advance().report(names(3, first=1)) == []


@pytest.mark.parametrize("is_allowed_first", [True, False])
def test_allow_accepts_only_what_is_gone_and_stays_gone(
    cluster: Cluster, is_allowed_first: bool
) -> None:
    cluster.fill(6).kill(*names(2)).report(names(2))
    if is_allowed_first:
        cluster.ask("allow")
    cluster.advance().report(not_gone=names(2))
    if not is_allowed_first:
        cluster.ask("allow")
    cluster.advance().report(names(2))
    assert cluster.status()["held"]


def test_allow_does_not_accept_a_node_that_is_created_again_later(cluster: Cluster) -> None:
    cluster.fill(6).kill(*names(2)).report(names(2))
    cluster.ask("allow")
    for name in names(2):
        cluster.change(name, uid=f"new-{name}")
    cluster.advance().report(names(2))
    assert cluster.status()["held"]
