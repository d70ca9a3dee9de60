"""What `make edge-cases` says of a row, given how its tests ended."""

import pytest

from tests.support.rows import Row, row

from .verdict import judge

ONE, TWO = Row("X1", False, "", ""), Row("X1", True, "", "")


@pytest.mark.parametrize(
    ("of", "outcomes", "difference", "expected"),
    [
        pytest.param(ONE, {"t[X1]": "passed"}, "", "passed", id="one-test"),
        pytest.param(ONE, {"t[a]": "passed", "t[b]": "failed"}, "", "FAILED", id="one-of-two"),
        pytest.param(ONE, {"t[a]": "passed", "t[b]": "skipped"}, "", "passed, 1 not run",
                     id="one-skipped"),
        pytest.param(ONE, {"t[a]": "skipped"}, "", "NOT RUN", id="all-skipped"),
        pytest.param(ONE, {}, "", "MISSING", id="no-test"),
        pytest.param(ONE, {}, "docs", "differs", id="a-difference-without-a-test"),
        pytest.param(ONE, {"t[a]": "passed"}, "docs", "passed, differs", id="and-with-one"),
        pytest.param(ONE, {"t[a]": "failed"}, "docs", "FAILED", id="that-fails"),
        pytest.param(TWO, {"t[X1]": "passed"}, "", "MISSING on sandbox", id="no-server"),
        pytest.param(TWO, {"t[X1-sandbox]": "passed"}, "", "MISSING on real", id="one-server"),
        pytest.param(
            TWO, {"t[X1-sandbox]": "passed", "t[X1-real]": "passed"}, "", "passed", id="both"
        ),
        pytest.param(
            TWO, {"t[X1-sandbox]": "passed", "t[X1-real]": "skipped"}, "", "passed, 1 not run",
            id="not-built-here",
        ),
    ],
)  # fmt: skip
def test_the_verdict_on_a_row(
    of: Row, outcomes: dict[str, str], difference: str, expected: str
) -> None:
    verdict = judge(of, outcomes, difference)
    assert verdict.result == expected
    assert verdict.is_good is expected.startswith(("passed", "differs"))


@row("no", "row")
def test_a_test_without_cases_can_carry_rows(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("[no-row]")
