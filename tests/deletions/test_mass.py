"""Many nodes gone at once stop every deletion, until it is calm again or a person allows it."""

from .site import Site, names


def shards_report(site: Site, *gone: list[str]) -> list[str]:
    """One round of each worker; what they were permitted together."""
    return [
        name
        for number, part in enumerate(gone)
        for name in site.round(part, worker=f"node-{number}.1")
    ]


def test_many_gone_at_once_over_all_workers_hold_every_deletion(site: Site) -> None:
    site.fill(100).kill(*names(31))
    for _ in range(20):
        assert shards_report(site.later(), names(16), names(15, first=16)) == []
    assert site.why("n0") == "many-vanished"
    assert site.status()["counts"]["held"] == 31
    assert [reason for reason, _ in site.warnings] == ["NodeDeletionsHeld"]
    assert "31 of 100" in site.warnings[0][1]


def test_a_second_worker_that_reports_the_rest_of_the_mass_comes_in_time(site: Site) -> None:
    site.fill(100).kill(*names(40))
    site.round(worker="node-1.1")
    site.later(1.0).round(names(20))
    assert site.later().round(names(20)) == []  # the second worker was not heard since
    site.later(0.1).round(names(20, first=20), worker="node-1.1")
    assert site.later().round(names(20)) == []
    assert site.why("n0") == "many-vanished"


def test_the_hold_ends_after_calm_rounds_and_needs_new_answers(site: Site) -> None:
    site.fill(100).kill(*names(31))
    shards_report(site, names(16), names(15, first=16))
    for _ in range(3):
        assert site.status()["held"]
        assert site.later().round(["n0"], not_gone=names(15, first=1)) == []
        site.round(not_gone=names(15, first=16), worker="node-1.1")
    assert site.status()["held"] == ""
    assert shards_report(site.later(), ["n0"], []) == []
    assert shards_report(site.later(), ["n0"], []) == ["n0"]


def test_a_worker_that_crashes_does_not_end_the_hold(site: Site) -> None:
    site.fill(100).kill(*names(31))
    shards_report(site, names(16), names(15, first=16))
    site.governor.forget("node-1.1")
    for _ in range(4):
        assert site.later().round(names(16)) == []
    assert site.status()["held"]


def test_nodes_deleted_a_moment_ago_still_count_as_vanished(site: Site) -> None:
    site.fill(10).kill(*names(6)).round(names(3))
    for name in site.later().round(names(3)):
        del site.nodes[name]
    site.later().round(names(3, first=3))
    assert site.later().round(names(3, first=3)) == []
    assert "6 of 10" in site.warnings[0][1]


def test_allow_accepts_what_is_gone_now_and_doubts_what_vanishes_later(site: Site) -> None:
    site.fill(100).kill(*names(90)).round(names(40))
    site.governor.allow()
    assert site.later().round(names(40)) == []
    assert len(site.later().round(names(40))) == 10
    site.later().round(names(80))
    assert site.later().round(names(80)) == []
    assert [reason for reason, _ in site.warnings] == ["NodeDeletionsHeld"] * 2


def test_a_node_that_came_back_is_doubted_again(site: Site) -> None:
    site.fill(6).kill(*names(2)).round(names(2))
    site.governor.allow()
    site.later().round(not_gone=names(2))
    site.later().round(names(2))
    assert site.status()["held"]


def test_allow_accepts_no_node_that_is_not_gone(site: Site) -> None:
    site.fill(6).kill(*names(2)).round(names(2))
    site.later().round(not_gone=names(2))
    site.governor.allow()
    site.later().round(names(2))
    assert site.status()["held"]


def test_allow_does_not_accept_a_node_that_is_created_anew_later(site: Site) -> None:
    site.fill(6).kill(*names(2)).round(names(2))
    site.governor.allow()
    for name in names(2):
        site.change(name, uid=f"new-{name}")
    site.later().round(names(2))
    assert site.status()["held"]
