"""The kit bites: a provider that is wrong in one place fails the test that is about it."""

from pathlib import Path

import pytest

from .conftest import RunKit
from .mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_it_is_caught(mutant: Mutant, package: Path, run_kit: RunKit) -> None:
    file = package / mutant.file
    text = file.read_text()
    assert text.count(mutant.before) == 1, "this does not stand there any more"
    file.write_text(text.replace(mutant.before, mutant.after))
    outcome = run_kit(mutant.caught_by)
    test = mutant.caught_by.partition("::")[2].partition("[")[0]
    assert outcome.failed == {test}, outcome.output
