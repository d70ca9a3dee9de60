"""The tests of the fault table bite: each fails without the cure of its fault."""

import ast
from pathlib import Path

import pytest

from tests.support.running import IS_LONG, long

from .cures import ROOT, Cure, cures_of, read_cures, without_cure
from .rows import FaultRow, read_rows
from .seen import FILE, read_seen, table_of_seen
from .without import Tree

CURED = [row for row in read_rows() if cures_of(row)]
TRIED = CURED if IS_LONG else CURED[:1]  # which stands for all, where they are skipped


def test_every_row_has_a_cure_or_is_listed_as_without_one() -> None:
    named = [name for cure in read_cures() for name in cure.rows]
    rows = sorted(row.name for row in read_rows())
    assert sorted({*named, *without_cure()}) == rows
    assert not {*named} & {*without_cure()}, "take these out of cures/missing.txt"


@pytest.mark.parametrize("cure", read_cures(), ids=lambda cure: cure.rows[0])
def test_a_cure_can_be_taken_from_the_present_source(cure: Cure) -> None:
    source = (ROOT / cure.file).read_text(encoding="utf-8")
    ast.parse(cure.taken_from(source))
    assert cure.new != cure.old


def test_what_was_seen_is_of_the_present_rows_tests_and_cures() -> None:
    assert FILE.read_text(encoding="utf-8") == table_of_seen(read_seen()), "run `make docs`"


@pytest.fixture(scope="module")
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """With a run of all tests that are tried."""
    tried = [getattr(item, "callspec", None) for item in request.session.items]
    rows = [case.params["row"] for case in tried if case and "row" in case.params]
    return Tree.copy(Path(tmp_path_factory.mktemp("without"), "tree"), rows)


@long
@pytest.mark.timeout(0)  # the runs in the copy have theirs
@pytest.mark.parametrize("row", TRIED, ids=lambda row: row.name)
def test_the_test_of_a_row_fails_without_its_cure(row: FaultRow, tree: Tree) -> None:
    verdict, why = tree.verdict(row)
    if verdict == "not run":
        pytest.skip(why)
    assert verdict == "bites", why
