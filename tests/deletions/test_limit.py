"""A permit is good once, and a window has room for only so many of them."""

from dataclasses import replace
from pathlib import Path

from .site import POLICY, Site, names


def test_a_permit_is_good_once_and_another_needs_two_new_answers(site: Site) -> None:
    site.fill(3).kill("n0").round(["n0"])
    assert site.later().round(["n0"]) == ["n0"]
    assert site.round(["n0"]) == []
    assert site.later().round(["n0"]) == []
    assert site.later().round(["n0"]) == ["n0"]
    assert site.status()["budget"]["left"] == 9


def test_a_deletion_that_failed_is_not_stopped_by_its_own_permit(tmp_path: Path) -> None:
    site = Site(tmp_path / "deletions.json", replace(POLICY, limit=1)).fill(9).kill("n0", "n1")
    site.round(["n0"])
    assert site.later().round(["n0"]) == ["n0"]
    site.later().round(["n0", "n1"])
    assert site.later().round(["n0", "n1"]) == ["n0"]


def test_no_more_nodes_go_in_a_window_than_the_limit(site: Site) -> None:
    site.fill(100).kill(*names(12)).round(names(12))
    first = site.later().round(names(12))
    assert len(first) == 10
    for name in first:
        del site.nodes[name]
    left = [name for name in names(12) if name not in first]
    assert site.later().round(left) == []
    assert site.why(left[0]) == "budget"
    assert site.later(595.0).round(left) == []  # a silence on the way
    assert site.later().round(left) == left


def test_permits_of_the_last_window_count_as_new_after_a_restart(site: Site) -> None:
    site.fill(100).kill(*names(12)).round(names(12))
    gone = site.later().round(names(12))
    left = [name for name in names(12) if name not in gone]
    site.later(500.0).restart()
    assert site.status()["budget"]["left"] == 0
    site.later(500.0).round(left)
    assert site.later().round(left) == []
    site.later(95.0).round(left)
    assert site.later().round(left) == left


def test_permits_that_are_over_do_not_come_back_with_a_restart(site: Site) -> None:
    site.fill(100).kill("n0").round(["n0"])
    assert site.later().round(["n0"]) == ["n0"]
    site.later(600.0).round()
    site.restart()
    assert site.status()["budget"]["left"] == 10
