"""The freeze of a person, and the file that it and the permits are kept in."""

import os
from pathlib import Path

import pytest

from ccm.supervisor.deletion_state import DeletionState, read_state, write_state

from .cluster import Cluster


def test_a_freeze_outlives_a_restart_until_it_is_lifted(cluster: Cluster) -> None:
    cluster.fill(3).kill("n0")
    cluster.ask("freeze", reason="network audit", by="ada")
    cluster.restart()
    for _ in range(3):
        assert cluster.advance().report(["n0"]) == []
    assert cluster.why("n0") == "frozen"
    assert cluster.status()["frozen"]["why"] == "network audit"
    assert cluster.status()["frozen"]["by"] == "ada"
    cluster.ask("allow")
    cluster.restart()
    assert cluster.status()["frozen"] is None
    cluster.advance().report(["n0"])
    assert cluster.advance().report(["n0"]) == ["n0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("is_link", [False, True])
def test_a_state_file_that_another_user_can_exchange_freezes(
    cluster: Cluster, tmp_path: Path, is_link: bool
) -> None:
    """They would lift a freeze, and give all permits of a window again."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    cluster.path = theirs / "deletions.json"
    if is_link:
        cluster.path = tmp_path / "link" / "deletions.json"
        cluster.path.parent.symlink_to(theirs)
    write_state(cluster.path, DeletionState())
    os.chown(theirs, 12345, 12345)
    cluster.restart()
    cluster.fill(3).kill("n0").report(["n0"])
    assert cluster.advance().report(["n0"]) == []
    assert "belongs to user 12345" in cluster.status()["frozen"]["why"]
    assert "error" in cluster.ask("allow")
    assert cluster.advance().report(["n0"]) == []
    os.chown(theirs, 0, 0)
    assert "ok" in cluster.ask("allow")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'{"freeze": null}',
     b'{"freeze": null, "permitted": {}}', b'{"freeze": null, "permitted": [1]}',
     b'{"freeze": "yes", "permitted": []}', b'{"freeze": {"why": "x"}, "permitted": []}',
     b'{"freeze": false, "permitted": []}'],
)  # fmt: skip
def test_a_state_file_that_is_not_understood_freezes_until_allow_writes_it_again(
    cluster: Cluster, content: bytes
) -> None:
    cluster.path.write_bytes(content)
    cluster.restart()
    cluster.fill(3).kill("n0").report(["n0"])
    assert cluster.advance().report(["n0"]) == []
    assert "cannot be read" in cluster.status()["frozen"]["why"]
    assert cluster.path.read_bytes() == content
    cluster.ask("allow")
    assert cluster.advance().report(["n0"]) == ["n0"]
    assert read_state(cluster.path).permitted == ("n0",)


def test_nothing_is_permitted_that_cannot_be_written_down(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    cluster = Cluster(tmp_path / "state" / "deletions.json").fill(3).kill("n0")
    (tmp_path / "state").unlink()
    cluster.ask("allow")
    cluster.report(["n0"])
    cluster.path.unlink()
    cluster.path.mkdir()  # now the file cannot be replaced
    assert cluster.advance().report(["n0"]) == []
    assert "cannot be written" in cluster.status()["last_error"]
    assert cluster.status()["budget"]["left"] == 10
    assert cluster.why("n0") == "frozen"
    assert cluster.ask("freeze").keys() == {"error"}
    assert cluster.ask("allow").keys() == {"error"}
    assert cluster.status()["frozen"], "an allow that is not kept lifts nothing"
    cluster.path.rmdir()
    assert cluster.ask("allow").keys() == {"ok"}
    assert cluster.advance().report(["n0"]) == ["n0"]


def test_a_disk_that_works_again_needs_no_one(cluster: Cluster) -> None:
    cluster.fill(3).kill("n0").report(["n0"])
    cluster.path.unlink()
    cluster.path.mkdir()
    assert cluster.advance().report(["n0"]) == []
    cluster.path.rmdir()
    assert cluster.advance().report(["n0"]) == ["n0"]


def test_a_permit_is_on_disk_before_the_worker_hears_of_it(cluster: Cluster) -> None:
    cluster.fill(3).kill("n0").report(["n0"])
    cluster.advance().report(["n0"])
    assert read_state(cluster.path).permitted == ("n0",)
    assert cluster.path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in cluster.path.parent.iterdir()] == [cluster.path.name]
