"""What is tested of each cloud: the same is made, and each takes over from the other."""

from typing import ClassVar

import pytest

from tests.peers.cases import LAST, Cases
from tests.peers.differences import Difference, compare, outlived, unknown
from tests.peers.picture import Picture
from tests.peers.play import Play
from tests.peers.world import OURS, UPSTREAM
from tests.support.running import long

Plays = dict[str, Play]
"""By who begins."""
BACK = pytest.param(OURS, marks=long)
DIRECTIONS = [("over", UPSTREAM), pytest.param("back", OURS, marks=long)]
"""Kinds of rows, and who began."""


def made(plays: Plays) -> list[Difference]:
    first, second = plays[UPSTREAM], plays[OURS]
    return [
        one
        for stage in first.alone
        for one in compare(first.pictures[stage], second.pictures[stage])
    ]


def writes(play: Play) -> list[Difference]:
    return [Difference(one) for one in play.writes]


class MadeChecks:
    """Tests of a cloud: a module gives it its `plays`."""

    cloud: ClassVar[str]

    def unknown(self, kind: str, found: list[Difference]) -> list[Difference]:
        new = unknown(self.cloud, kind, found)
        print(*("not listed: " + str(one) for one in new), sep="\n")
        return new

    def test_both_make_the_same_but_for_what_is_listed(self, plays: Plays) -> None:
        found = made(plays)
        for stage in plays[UPSTREAM].alone:
            upstream, ours = (plays[who].pictures[stage] for who in (UPSTREAM, OURS))
            same = sum(upstream[path] == ours.get(path) for path in upstream)
            other = len([*compare(upstream, ours)])
            print(f"{stage}: {same} fields are the same, {other} differences are listed")
        assert self.unknown("made", found) == []

    @long
    def test_every_row_is_still_true(self, plays: Plays) -> None:
        outdated = [
            row.where
            for kind, found in self.everything(plays).items()
            for row in outlived(self.cloud, kind, found)
        ]
        assert outdated == []

    def everything(self, plays: Plays) -> dict[str, list[Difference]]:
        """All that was found, by kind."""
        return {"made": made(plays)}


class Checks(MadeChecks):
    """The same where each takes over from the other."""

    cases: ClassVar[Cases]
    kept: ClassVar[tuple[str, ...]]
    """What paths begin with that belong to a Service, though no Service is there any more."""

    def left(self, picture: Picture) -> list[Difference]:
        """What belongs to a Service, by objects."""
        mine = [path for path in picture if path.startswith(self.kept)]
        return [Difference(one) for one in dict.fromkeys(map(self.name_of, mine))]

    def name_of(self, path: str) -> str:
        """That of the object which a path leads into."""
        return " ".join(path.split(" ")[:2])

    @pytest.mark.parametrize(("kind", "first"), DIRECTIONS)
    def test_who_takes_over_writes_only_what_is_listed(
        self, plays: Plays, kind: str, first: str
    ) -> None:
        found = writes(plays[first])
        print(f"{kind}: {len(found)} writes to the cloud")
        assert self.unknown(kind, found) == []

    @pytest.mark.parametrize("first", [UPSTREAM, BACK])
    def test_who_took_over_makes_the_changes_that_are_asked_for(
        self, plays: Plays, first: str
    ) -> None:
        second = OURS if first == UPSTREAM else UPSTREAM
        without, served = self.cases.refused_after(first, second), plays[first].served
        for name, case in self.cases.chosen.items():
            spec = case.later.spec if case.later else {"type": "ClusterIP"}
            has_listeners = not spec.keys() & {"type", "allocateLoadBalancerNodePorts"}
            if has_listeners and name not in without:
                assert name in served, f"port {LAST} of {name}"

    @pytest.mark.parametrize("first", [UPSTREAM, BACK])
    def test_nothing_is_left_when_all_is_deleted(self, plays: Plays, first: str) -> None:
        assert self.unknown("left", self.left(plays[first].pictures["deleted"])) == []

    def everything(self, plays: Plays) -> dict[str, list[Difference]]:
        left = [one for play in plays.values() for one in self.left(play.pictures["deleted"])]
        return super().everything(plays) | {
            "over": writes(plays[UPSTREAM]),
            "back": writes(plays[OURS]),
            "left": left,
        }
