"""How evidence grows and ends, and which passes of a worker are believed."""

from dataclasses import replace

import pytest

from ccm.decide.deletion import GoneHistory, LastAnswer, extend, interrupt
from ccm.decide.deletion_report import GoneAnswer, PassReport, parse_report

from .cluster import POLICY

NOW = 1000.0
GONE, NOT_GONE, NONE = LastAnswer.GONE, LastAnswer.NOT_GONE, LastAnswer.NONE


def gone(at: float, uid: str = "u1") -> GoneAnswer:
    return GoneAnswer("n", uid, "no such machine", at)


def run(first: float, last: float) -> GoneHistory:
    return GoneHistory("u1", "w", LastAnswer.GONE, first=first, last=last)


def not_gone_at(at: float) -> GoneHistory:
    return interrupt(run(900.0, 905.0), LastAnswer.NOT_GONE, at)


@pytest.mark.parametrize(
    ("before", "answer", "worker", "expected"),
    [
        pytest.param(None, gone(999.0), "w", (GONE, 999.0, 999.0), id="the-first"),
        pytest.param(None, gone(970.0), "w", (GONE, 970.0, 970.0), id="just-fresh"),
        pytest.param(None, gone(969.9), "w", (NONE,), id="too-old"),
        pytest.param(None, gone(1000.0), "w", (GONE, 1000.0, 1000.0), id="of-this-instant"),
        pytest.param(None, gone(1000.1), "w", (NONE,), id="from-the-future"),
        pytest.param(None, gone(float("nan")), "w", (NONE,), id="no-time"),
        pytest.param(run(990.0, 995.0), gone(999.0), "w", (GONE, 990.0, 999.0), id="goes-on"),
        pytest.param(run(990.0, 995.0), gone(995.0), "w", (GONE, 990.0, 995.0), id="repeated"),
        pytest.param(run(990.0, 995.0), gone(980.0), "w", (GONE, 990.0, 995.0), id="late"),
        pytest.param(run(990.0, 995.0), gone(960.0), "w", (GONE, 990.0, 995.0), id="stale"),
        pytest.param(run(900.0, 939.0), gone(999.0), "w", (GONE, 900.0, 999.0), id="pause"),
        pytest.param(run(900.0, 938.9), gone(999.0), "w", (GONE, 999.0, 999.0), id="silence"),
        pytest.param(run(990.0, 995.0), gone(999.0, "u2"), "w", (GONE, 999.0, 999.0),
                     id="created-again"),
        pytest.param(run(990.0, 995.0), gone(999.0), "w2", (GONE, 999.0, 999.0),
                     id="another-worker"),
        pytest.param(not_gone_at(996.0), gone(999.0), "w", (GONE, 999.0, 999.0),
                     id="after-a-contradiction"),
        pytest.param(not_gone_at(996.0), gone(996.0), "w", (NOT_GONE,),
                     id="given-before-the-contradiction"),
    ],
)  # fmt: skip
def test_a_run_of_answers_grows_only_by_new_unbroken_ones(
    before: GoneHistory | None, answer: GoneAnswer, worker: str, expected: tuple[object, ...]
) -> None:
    after = extend(before, answer, worker, POLICY, NOW)
    found = (after.answer, after.first, after.last)
    assert found[: len(expected)] == expected


def test_a_new_run_still_remembers_what_came_before_it() -> None:
    known = extend(not_gone_at(996.0), gone(998.0), "w", POLICY, 998.0)
    assert extend(known, gone(995.0), "w2", POLICY, NOW) == known


def test_a_run_says_whose_it_is_and_whether_its_last_answer_is_final() -> None:
    final = replace(gone(995.0), is_final=True)
    first = extend(None, final, "w", POLICY, NOW)
    assert first == GoneHistory("u1", "w", GONE, first=995.0, last=995.0, is_final=True)
    on = extend(first, gone(999.0), "w", POLICY, NOW)
    assert on == replace(first, last=999.0, is_final=False)
    assert extend(on, replace(final, at=999.5), "w", POLICY, NOW).is_final


def test_a_run_of_another_worker_still_begins_after_what_contradicted_the_last() -> None:
    known = not_gone_at(996.0)
    assert known == GoneHistory("u1", "w", NOT_GONE, after=996.0, first=900.0, last=905.0)
    assert extend(known, gone(999.0, "u2"), "w2", POLICY, NOW) == GoneHistory(
        "u2", "w2", GONE, after=996.0, first=999.0, last=999.0
    )


# Passes, as a process that runs provider code may send them.

GOOD = ["n1", "u1", "no such machine", 5.0, False]


@pytest.mark.parametrize("asked", [2, 3])
def test_a_pass_names_each_node_once(asked: int) -> None:
    assert parse_report(asked, [GOOD], ["n2"]) == PassReport(
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
        pytest.param(3, [GOOD, "n2u5f"], [], id="an-entry-is-text-of-five"),
        pytest.param(3, [GOOD, ["n2", "u2", "why", 5.0]], [], id="an-entry-is-short"),
        pytest.param(3, [[*GOOD, 1]], [], id="an-entry-is-long"),
        pytest.param(3, [["n1", "", "why", 5.0, False]], [], id="an-empty-uid"),
        pytest.param(3, [["n1", "u1", None, 5.0, False]], [], id="evidence-is-missing"),
        pytest.param(3, [["n1", "u1", "why", "5.0", False]], [], id="time-is-text"),
        pytest.param(3, [["n1", "u1", "why", True, False]], [], id="time-is-a-truth"),
        pytest.param(3, [["n1", "u1", "why", None, False]], [], id="time-is-missing"),
        pytest.param(3, [["n1", "u1", "why", 5.0, 1]], [], id="for-ever-is-a-number"),
        pytest.param(3, [GOOD, ["n1", "u1", "why", 0.0, False]], [], id="its-own-confirmation"),
        pytest.param(3, [GOOD], ["n1"], id="it-contradicts-itself"),
    ],
)
def test_a_round_with_anything_odd_in_it_is_not_trusted_at_all(
    asked: object, gone: object, not_gone: object
) -> None:
    assert parse_report(asked, gone, not_gone) is None
