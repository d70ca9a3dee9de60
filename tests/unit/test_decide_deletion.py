"""Which Nodes may be deleted: every combination against the promises, evidence, and the hold."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.deletion import (
    CALM_ROUNDS,
    RULES,
    Case,
    GoneAnswer,
    Held,
    History,
    Hold,
    Never,
    NodeFacts,
    NotYet,
    Permit,
    Policy,
    Reason,
    Round,
    Said,
    Situation,
    Verdict,
    add_gone,
    decide,
    interrupted,
    is_over,
    read_round,
    weigh,
)

DOCS = Path(__file__).parents[2] / "docs" / "deletion.md"
POLICY = Policy(period=5.0, limit=10, limit_percent=10.0, window=600.0, vanish_share=0.3)
NOW = 1000.0
KINDS = {Never: "never", Held: "held", NotYet: "not yet"}


# Every combination of what can be known.


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
        seen = NodeFacts(uid, self.ready, self.foreign, self.has_id) if uid else None
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


# Shares and limits.


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


# Evidence.


def gone(at: float, uid: str = "u1") -> GoneAnswer:
    return GoneAnswer("n", uid, "no such machine", at)


def run(first: float, last: float) -> History:
    return History("u1", "w", Said.GONE, first=first, last=last)


def not_gone_at(at: float) -> History:
    return interrupted(run(900.0, 905.0), Said.NOT_GONE, at)


@pytest.mark.parametrize(
    ("before", "answer", "worker", "expected"),
    [
        pytest.param(None, gone(999.0), "w", (Said.GONE, 999.0, 999.0), id="the-first"),
        pytest.param(None, gone(970.0), "w", (Said.GONE, 970.0, 970.0), id="just-fresh"),
        pytest.param(None, gone(969.9), "w", (Said.NOTHING,), id="too-old"),
        pytest.param(None, gone(1000.1), "w", (Said.NOTHING,), id="from-the-future"),
        pytest.param(None, gone(float("nan")), "w", (Said.NOTHING,), id="no-time"),
        pytest.param(run(990.0, 995.0), gone(999.0), "w", (Said.GONE, 990.0, 999.0), id="goes-on"),
        pytest.param(run(990.0, 995.0), gone(995.0), "w", (Said.GONE, 990.0, 995.0), id="repeated"),
        pytest.param(run(990.0, 995.0), gone(980.0), "w", (Said.GONE, 990.0, 995.0), id="late"),
        pytest.param(run(990.0, 995.0), gone(960.0), "w", (Said.GONE, 990.0, 995.0), id="stale"),
        pytest.param(run(900.0, 939.0), gone(999.0), "w", (Said.GONE, 900.0, 999.0), id="pause"),
        pytest.param(run(900.0, 938.9), gone(999.0), "w", (Said.GONE, 999.0, 999.0), id="silence"),
        pytest.param(run(990.0, 995.0), gone(999.0, "u2"), "w", (Said.GONE, 999.0, 999.0),
                     id="created-anew"),
        pytest.param(run(990.0, 995.0), gone(999.0), "w2", (Said.GONE, 999.0, 999.0),
                     id="another-worker"),
        pytest.param(not_gone_at(996.0), gone(999.0), "w", (Said.GONE, 999.0, 999.0),
                     id="after-a-contradiction"),
        pytest.param(not_gone_at(996.0), gone(996.0), "w", (Said.NOT_GONE,),
                     id="given-before-the-contradiction"),
    ],
)  # fmt: skip
def test_a_run_of_answers_grows_only_by_new_unbroken_ones(
    before: History | None, answer: GoneAnswer, worker: str, expected: tuple[object, ...]
) -> None:
    after = add_gone(before, answer, worker, POLICY, NOW)
    found = (after.said, after.first, after.last)
    assert found[: len(expected)] == expected


def test_a_new_run_still_remembers_what_came_before_it() -> None:
    known = add_gone(not_gone_at(996.0), gone(998.0), "w", POLICY, 998.0)
    assert add_gone(known, gone(995.0), "w2", POLICY, NOW) == known


@given(st.lists(st.tuples(st.sampled_from(["gone", "else"]), st.floats(0, 40)), max_size=8))
def test_a_contradiction_is_never_inside_a_run(rounds: list[tuple[str, float]]) -> None:
    now, known, contradicted = 0.0, History("u1", "w"), float("-inf")
    for word, age in rounds:
        now += 5.0
        if word == "gone":
            known = add_gone(known, gone(now - age), "w", POLICY, now)
        else:
            known, contradicted = interrupted(known, Said.NOT_GONE, now), now
        assert known.said is not Said.GONE or contradicted < known.first <= known.last <= now


# Rounds, as a process that runs provider code may send them.

GOOD = ["n1", "u1", "no such machine", 5.0]


def test_a_round_names_each_node_once() -> None:
    assert read_round(3, [GOOD], ["n2"]) == Round(
        (GoneAnswer("n1", "u1", "no such machine", 5.0),), ("n2",)
    )


@pytest.mark.parametrize(
    ("asked", "gone", "not_gone"),
    [
        pytest.param("3", [GOOD], [], id="asked-is-text"),
        pytest.param(True, [GOOD], [], id="asked-is-a-truth"),
        pytest.param(None, [GOOD], [], id="asked-is-missing"),
        pytest.param(0, [GOOD], [], id="more-answers-than-questions"),
        pytest.param(-1, [], [], id="fewer-than-none"),
        pytest.param(3, None, [], id="gone-is-missing"),
        pytest.param(3, {"n1": GOOD}, [], id="gone-is-an-object"),
        pytest.param(3, "n1", [], id="gone-is-text"),
        pytest.param(3, [GOOD], None, id="not-gone-is-missing"),
        pytest.param(3, [GOOD], "n2", id="not-gone-is-text"),
        pytest.param(3, [GOOD], [7], id="a-name-is-a-number"),
        pytest.param(3, [GOOD], [""], id="a-name-is-empty"),
        pytest.param(3, [GOOD], [["n2"]], id="a-name-is-a-list"),
        pytest.param(3, [GOOD, "n2"], [], id="an-entry-is-text"),
        pytest.param(3, [GOOD, "n2u5"], [], id="an-entry-is-text-of-four"),
        pytest.param(3, [GOOD, ["n2", "u2", "why"]], [], id="an-entry-is-short"),
        pytest.param(3, [[*GOOD, 1]], [], id="an-entry-is-long"),
        pytest.param(3, [["n1", "", "why", 5.0]], [], id="an-empty-uid"),
        pytest.param(3, [["n1", "u1", None, 5.0]], [], id="evidence-is-missing"),
        pytest.param(3, [["n1", "u1", "why", "5.0"]], [], id="time-is-text"),
        pytest.param(3, [["n1", "u1", "why", True]], [], id="time-is-a-truth"),
        pytest.param(3, [["n1", "u1", "why", None]], [], id="time-is-missing"),
        pytest.param(3, [GOOD, ["n1", "u1", "why", 0.0]], [], id="its-own-confirmation"),
        pytest.param(3, [GOOD], ["n1"], id="it-contradicts-itself"),
    ],
)
def test_a_round_with_anything_odd_in_it_is_not_believed_at_all(
    asked: object, gone: object, not_gone: object
) -> None:
    assert read_round(asked, gone, not_gone) is None


# The hold.

CALM = replace(deletable().case().situation, vanished=30)
MASS = replace(CALM, vanished=31)


def after(rounds: str, hold: Hold | None = None, step: float = 5.0) -> tuple[Hold | None, float]:
    """The hold after rounds such as "Aab": a worker each, a capital when it is a mass."""
    now = NOW
    for index, sign in enumerate(rounds):
        now = NOW + index * step
        hold = weigh(hold, MASS if sign.isupper() else CALM, sign.lower(), POLICY, now)
    return hold, now


def is_open(rounds: str, workers: str, step: float = 5.0) -> bool:
    hold, now = after(rounds, step=step)
    return hold is None or is_over(hold, workers, POLICY, now)


@pytest.mark.parametrize(
    ("rounds", "workers", "step", "expected"),
    [
        pytest.param("aaa", "a", 5.0, True, id="it-was-never-a-mass"),
        pytest.param("A", "a", 5.0, False, id="a-mass"),
        pytest.param("Aaa", "a", 5.0, False, id="two-calm-rounds"),
        pytest.param("Aaaa", "a", 5.0, True, id="three-calm-rounds"),
        pytest.param("AaaAaa", "a", 5.0, False, id="a-mass-again"),
        pytest.param("Aaaabb", "ab", 5.0, False, id="one-worker-is-not-calm-for-long-enough"),
        pytest.param("Aababab", "ab", 5.0, True, id="both-workers"),
        pytest.param("Aaaaaaa", "ab", 5.0, False, id="one-worker-says-nothing"),
        pytest.param("Aaaaaaaa", "a", 0.1, False, id="a-quick-burst-of-rounds"),
        pytest.param("Aaa", "a", 100.0, False, id="slow-rounds-count-too"),
    ],
)
def test_a_hold_ends_after_calm_rounds_of_every_worker(
    rounds: str, workers: str, step: float, expected: bool
) -> None:
    assert is_open(rounds, workers, step) is expected


def test_a_hold_tells_of_its_beginning_and_of_the_latest_mass() -> None:
    hold, _ = after("AaA")
    assert hold == Hold(NOW, 31, 100)
    assert CALM_ROUNDS == 3  # docs/deletion.md says three
