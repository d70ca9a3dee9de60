"""The freeze of a person, and the file that it and the permits are kept in."""

from pathlib import Path

import pytest

from ccm.supervisor.deletion_state import read_state

from .site import Site


def test_a_freeze_outlives_a_restart_until_it_is_lifted(site: Site) -> None:
    site.fill(3).kill("n0")
    site.governor.freeze("network audit", "ada")
    site.restart()
    for _ in range(3):
        assert site.later().round(["n0"]) == []
    assert site.why("n0") == "frozen"
    assert site.status()["frozen"]["why"] == "network audit"
    assert site.status()["frozen"]["by"] == "ada"
    site.governor.allow()
    site.restart()
    assert site.status()["frozen"] is None
    site.later().round(["n0"])
    assert site.later().round(["n0"]) == ["n0"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'{"freeze": null}',
     b'{"freeze": null, "permitted": {}}', b'{"freeze": null, "permitted": [1]}',
     b'{"freeze": "yes", "permitted": []}', b'{"freeze": {"why": "x"}, "permitted": []}',
     b'{"freeze": false, "permitted": []}'],
)  # fmt: skip
def test_a_state_file_that_is_not_understood_freezes_until_allow_writes_it_anew(
    site: Site, content: bytes
) -> None:
    site.path.write_bytes(content)
    site.restart()
    site.fill(3).kill("n0").round(["n0"])
    assert site.later().round(["n0"]) == []
    assert "cannot be read" in site.status()["frozen"]["why"]
    assert site.path.read_bytes() == content
    site.governor.allow()
    assert site.later().round(["n0"]) == ["n0"]
    assert read_state(site.path).permitted == ("u0",)


def test_nothing_is_permitted_that_cannot_be_written_down(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    site = Site(tmp_path / "state" / "deletions.json").fill(3).kill("n0")
    (tmp_path / "state").unlink()
    site.governor.allow()
    site.round(["n0"])
    site.path.unlink()
    site.path.mkdir()  # now the file cannot be replaced
    assert site.later().round(["n0"]) == []
    assert "cannot be written" in site.status()["trouble"]
    assert site.status()["budget"]["left"] == 10
    assert site.why("n0") == "frozen"
    assert site.governor.answer({"action": "freeze"}).keys() == {"error"}
    assert site.governor.answer({"action": "allow"}).keys() == {"error"}
    assert site.status()["frozen"], "an allow that is not kept lifts nothing"
    site.path.rmdir()
    assert site.governor.answer({"action": "allow"}).keys() == {"ok"}
    assert site.later().round(["n0"]) == ["n0"]


def test_a_disk_that_works_again_needs_nobody(site: Site) -> None:
    site.fill(3).kill("n0").round(["n0"])
    site.path.unlink()
    site.path.mkdir()
    assert site.later().round(["n0"]) == []
    site.path.rmdir()
    assert site.later().round(["n0"]) == ["n0"]


def test_a_permit_is_on_disk_before_the_worker_hears_of_it(site: Site) -> None:
    site.fill(3).kill("n0").round(["n0"])
    site.later().round(["n0"])
    assert read_state(site.path).permitted == ("u0",)
    assert site.path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in site.path.parent.iterdir()] == [site.path.name]
