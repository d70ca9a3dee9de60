"""Which Nodes may be deleted: every combination of what can be known against the promises."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from ccm.decide.deletion import (
    DELETION_RULES,
    Candidate,
    ClusterState,
    DeletionDecision,
    GoneHistory,
    LastAnswer,
    ObservedNode,
    Reason,
    Verdict,
    evaluate,
)

from .cluster import POLICY

DOCS = Path(__file__).parents[3] / "docs" / "deletion.md"
NOW = 1000.0


@dataclass(frozen=True)
class World:
    """One combination, in the words of the promises and not of the code."""

    node: str  # "there", "another uid" or "not there"
    ready: bool
    foreign: bool
    has_id: bool
    said: LastAnswer
    answers: str  # "two apart", "two close", "one", "old", "future"
    frozen: bool
    held: bool
    gone_at_once: int  # of 100
    alive: int  # of others that were called gone then, whose kubelets live
    others: bool  # every worker reported since the first answer
    room: bool  # the window has room

    def case(self) -> Candidate:
        first, last = {
            "two apart": (NOW - 5.0, NOW),
            "two close": (NOW - 4.9, NOW),
            "one": (NOW - 1.0, NOW - 1.0),
            "old": (NOW - 50.0, NOW - 30.1),
            "future": (NOW - 5.0, NOW + 0.1),
        }[self.answers]
        uid = {"there": "u1", "another uid": "u2", "not there": ""}[self.node]
        seen = ObservedNode(uid, self.ready, self.foreign, self.has_id) if uid else None
        situation = ClusterState(
            total=100,
            vanished=self.gone_at_once,
            permits=(NOW - 1.0,) * (9 if self.room else 10),
            is_frozen=self.frozen,
            is_held=self.held,
            all_heard_since=first if self.others else first - 0.1,
            ready_gone=(first + 20.0,) * self.alive + (first + 20.1,) * 2,
        )
        return Candidate(
            GoneHistory("u1", "w", self.said, first=first, last=last), seen, situation, POLICY, NOW
        )

    def doubts(self) -> Iterator[Reason]:
        """Each promise that a deletion would break, or each wish it must wait for."""
        is_there = self.node != "not there"
        holds = {
            Reason.NO_SUCH_NODE: self.node != "there",
            Reason.READY: is_there and self.ready,
            Reason.FOREIGN: is_there and self.foreign,
            Reason.NO_PROVIDER_ID: is_there and not self.has_id,
            Reason.NOT_GONE: self.said is LastAnswer.NOT_GONE,
            Reason.FROZEN: self.frozen,
            Reason.MANY_VANISHED: self.held or self.gone_at_once > 30,
            Reason.READY_NODES_GONE: self.alive > 1,
            Reason.NO_FRESH_ANSWER: (
                self.said is not LastAnswer.GONE or self.answers in ("old", "future")
            ),
            Reason.NOT_CONFIRMED: self.answers in ("two close", "one"),
            Reason.WORKERS_NOT_HEARD: not self.others,
            Reason.BUDGET: not self.room,
        }
        return (reason for reason, applies in holds.items() if applies)


NEVER = {
    Reason.NO_SUCH_NODE,
    Reason.READY,
    Reason.FOREIGN,
    Reason.NO_PROVIDER_ID,
    Reason.NOT_GONE,
}
HELD = {Reason.FROZEN, Reason.MANY_VANISHED, Reason.READY_NODES_GONE}


def worlds() -> Iterator[World]:
    yes = (False, True)
    for values in product(
        ("there", "another uid", "not there"), yes, yes, yes, LastAnswer,
        ("two apart", "two close", "one", "old", "future"), yes, yes, (1, 30, 31), (1, 2), yes, yes,
    ):  # fmt: skip
        yield World(*values)  # type: ignore[arg-type]


def expected(doubts: set[Reason]) -> DeletionDecision:
    if doubts & NEVER:
        return DeletionDecision.NEVER
    if doubts & HELD:
        return DeletionDecision.HELD
    return DeletionDecision.NOT_YET if doubts else DeletionDecision.PERMIT


def test_every_combination_keeps_every_promise() -> None:
    permitted = 0
    for world in worlds():
        doubts, verdict = set(world.doubts()), evaluate(world.case())
        assert verdict.decision is expected(doubts), (world, verdict)
        assert verdict.why in doubts or (not doubts and verdict.why is None), (world, verdict)
        permitted += verdict.decision is DeletionDecision.PERMIT
    assert permitted == 2  # of all: for 1 and for 30 of 100 gone at once


def test_the_first_doubt_of_the_table_is_the_one_that_is_reported() -> None:
    order = [rule.reason for rule in DELETION_RULES]
    for world in worlds():
        first = min(world.doubts(), key=order.index, default=None)
        assert evaluate(world.case()).why is first, world


def test_every_reason_has_one_row_and_never_comes_before_held_before_not_yet() -> None:
    assert [rule.reason for rule in DELETION_RULES] == list(Reason)
    severities = [list(DeletionDecision).index(rule.decision) for rule in DELETION_RULES]
    assert severities == sorted(severities)


def test_the_page_for_operators_has_the_table_of_the_code() -> None:
    table = [
        "| Reason | Verdict | When | What to do |",
        "|---|---|---|---|",
        *(
            f"| `{rule.reason}` | {rule.decision} | {rule.meaning} | {rule.remedy} |"
            for rule in DELETION_RULES
        ),
    ]
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("|")] == table


def not_yet(why: Reason, until: float) -> Verdict:
    return Verdict(DeletionDecision.NOT_YET, why, until)


def deletable() -> World:
    return World(
        "there", False, False, True, LastAnswer.GONE, "two apart", False, False, 1, 0, True, True
    )  # fmt: skip


@pytest.mark.parametrize(
    ("situation", "until"),
    [
        pytest.param({"permits": (NOW - 500.0, *(NOW - 1.0,) * 9)}, NOW + 100.0, id="oldest-ends"),
        pytest.param({"permits": (NOW - 500.0, *(NOW - 1.0,) * 10)}, NOW + 599.0, id="overdrawn"),
    ],
)
def test_a_spent_budget_says_when_there_is_room_again(
    situation: dict[str, tuple[float, ...]], until: float
) -> None:
    case = deletable().case()
    full = replace(case.cluster, permits=situation["permits"])
    assert evaluate(replace(case, cluster=full)) == Verdict(
        DeletionDecision.NOT_YET, Reason.BUDGET, until
    )


def test_a_limit_of_zero_deletes_nothing_for_ever() -> None:
    case = deletable().case()
    none = replace(
        case,
        policy=replace(POLICY, limit=0, limit_percent=0.0),
        cluster=replace(case.cluster, permits=()),
    )
    assert evaluate(none) == not_yet(Reason.BUDGET, float("inf"))


def test_an_unconfirmed_node_says_when_an_answer_would_confirm_it() -> None:
    case = replace(deletable(), answers="one").case()
    assert evaluate(case) == not_yet(Reason.NOT_CONFIRMED, NOW + 4.0)


@pytest.mark.parametrize(
    ("vanished", "total", "is_mass"),
    [
        pytest.param(1, 1, False, id="the-only-node"),
        pytest.param(1, 3, False, id="one-of-three"),
        pytest.param(2, 2, True, id="both"),
        pytest.param(2, 3, True, id="two-of-three"),
        pytest.param(2, 6, True, id="two-of-six"),
        pytest.param(2, 7, False, id="two-of-seven"),
        pytest.param(30, 100, False, id="just-the-share"),
        pytest.param(31, 100, True, id="more-than-the-share"),
        pytest.param(2, 0, True, id="nothing-is-known-of-the-cluster"),
    ],
)
def test_a_mass_is_more_than_one_node_and_more_than_the_share(
    vanished: int, total: int, is_mass: bool
) -> None:
    assert POLICY.is_mass(vanished, total) is is_mass


@pytest.mark.parametrize(
    ("limit", "percent", "total", "budget"),
    [(10, 10.0, 3, 10), (10, 10.0, 100, 10), (10, 10.0, 119, 11), (10, 10.0, 5000, 500),
     (5, 0.0, 5000, 5), (0, 10.0, 9, 0), (0, 0.0, 5000, 0)],
)  # fmt: skip
def test_the_budget_is_the_larger_of_number_and_share(
    limit: int, percent: float, total: int, budget: int
) -> None:
    assert replace(POLICY, limit=limit, limit_percent=percent).budget(total) == budget
