"""Which Nodes may be deleted: every combination of what can be known against the promises."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from ccm.decide.deletion import (
    RULES,
    Case,
    Held,
    History,
    Never,
    NotYet,
    ObservedNode,
    Permit,
    Reason,
    Said,
    Situation,
    Verdict,
    decide,
)

from .site import POLICY

DOCS = Path(__file__).parents[2] / "docs" / "deletion.md"
NOW = 1000.0
KINDS = {Never: "never", Held: "held", NotYet: "not yet"}


@dataclass(frozen=True)
class World:
    """One combination, in the words of the promises and not of the code."""

    node: str  # "there", "another uid" or "not there"
    ready: bool
    foreign: bool
    has_id: bool
    said: Said
    answers: str  # "two apart", "two close", "one", "old", "future"
    frozen: bool
    held: bool
    gone_at_once: int  # of 100
    others: bool  # every worker reported since the first answer
    room: bool  # the window has room

    def case(self) -> Case:
        first, last = {
            "two apart": (NOW - 5.0, NOW),
            "two close": (NOW - 4.9, NOW),
            "one": (NOW - 1.0, NOW - 1.0),
            "old": (NOW - 50.0, NOW - 30.1),
            "future": (NOW - 5.0, NOW + 0.1),
        }[self.answers]
        uid = {"there": "u1", "another uid": "u2", "not there": ""}[self.node]
        seen = ObservedNode(uid, self.ready, self.foreign, self.has_id) if uid else None
        situation = Situation(
            total=100,
            vanished=self.gone_at_once,
            permits=(NOW - 1.0,) * (9 if self.room else 10),
            is_frozen=self.frozen,
            is_held=self.held,
            all_heard_since=first if self.others else first - 0.1,
        )
        return Case(
            History("u1", "w", self.said, first=first, last=last), seen, situation, POLICY, NOW
        )

    def doubts(self) -> Iterator[Reason]:
        """Each promise that a deletion would break, or each wish it must wait for."""
        if self.node != "there":
            yield Reason.NO_SUCH_NODE
        if self.node != "not there" and self.ready:
            yield Reason.READY
        if self.node != "not there" and self.foreign:
            yield Reason.FOREIGN
        if self.node != "not there" and not self.has_id:
            yield Reason.NO_PROVIDER_ID
        if self.said is Said.NOT_GONE:
            yield Reason.NOT_GONE
        if self.frozen:
            yield Reason.FROZEN
        if self.held or self.gone_at_once > 30:
            yield Reason.MANY_VANISHED
        if self.said is not Said.GONE or self.answers in ("old", "future"):
            yield Reason.NO_FRESH_ANSWER
        if self.answers in ("two close", "one"):
            yield Reason.NOT_CONFIRMED
        if not self.others:
            yield Reason.WORKERS_NOT_HEARD
        if not self.room:
            yield Reason.BUDGET


NEVER = {
    Reason.NO_SUCH_NODE,
    Reason.READY,
    Reason.FOREIGN,
    Reason.NO_PROVIDER_ID,
    Reason.NOT_GONE,
}
HELD = {Reason.FROZEN, Reason.MANY_VANISHED}


def worlds() -> Iterator[World]:
    yes = (False, True)
    for values in product(
        ("there", "another uid", "not there"), yes, yes, yes, Said,
        ("two apart", "two close", "one", "old", "future"), yes, yes, (1, 30, 31), yes, yes,
    ):  # fmt: skip
        yield World(*values)  # type: ignore[arg-type]


def expected_kind(doubts: set[Reason]) -> type[Verdict]:
    if doubts & NEVER:
        return Never
    if doubts & HELD:
        return Held
    return NotYet if doubts else Permit


def test_every_combination_keeps_every_promise() -> None:
    permitted = 0
    for world in worlds():
        doubts, verdict = set(world.doubts()), decide(world.case())
        assert type(verdict) is expected_kind(doubts), (world, verdict)
        if isinstance(verdict, Permit):
            permitted += 1
        else:
            assert verdict.why in doubts, (world, verdict)
    assert permitted == 2  # of all: for 1 and for 30 of 100 gone at once


def test_the_first_doubt_of_the_table_is_the_one_that_is_told() -> None:
    order = [rule.reason for rule in RULES]
    for world in worlds():
        verdict = decide(world.case())
        if not isinstance(verdict, Permit):
            assert verdict.why is min(world.doubts(), key=order.index), world


def test_every_reason_has_one_row_and_never_comes_before_held_before_not_yet() -> None:
    assert [rule.reason for rule in RULES] == list(Reason)
    kinds = [list(KINDS).index(rule.verdict) for rule in RULES]
    assert kinds == sorted(kinds)


def test_the_page_for_operators_has_the_table_of_the_code() -> None:
    table = [
        "| Reason | Verdict | When | What to do |",
        "|---|---|---|---|",
        *(
            f"| `{rule.reason}` | {KINDS[rule.verdict]} | {rule.meaning} | {rule.remedy} |"
            for rule in RULES
        ),
    ]
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("|")] == table


def deletable() -> World:
    return World(
        "there", False, False, True, Said.GONE, "two apart", False, False, 1, True, True
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
    full = replace(case.situation, permits=situation["permits"])
    assert decide(replace(case, situation=full)) == NotYet(Reason.BUDGET, until)


def test_a_limit_of_zero_deletes_nothing_for_ever() -> None:
    case = deletable().case()
    none = replace(
        case,
        policy=replace(POLICY, limit=0, limit_percent=0.0),
        situation=replace(case.situation, permits=()),
    )
    assert decide(none) == NotYet(Reason.BUDGET, float("inf"))


def test_an_unconfirmed_node_says_when_an_answer_would_confirm_it() -> None:
    case = replace(deletable(), answers="one").case()
    assert decide(case) == NotYet(Reason.NOT_CONFIRMED, NOW + 4.0)


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
