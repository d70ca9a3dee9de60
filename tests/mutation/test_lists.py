"""The lists of the mutation run follow the tree: it takes too long to say so itself."""

from pathlib import Path

from tests.mutation.lists import files_by_module, reasons

ROOT = Path(__file__).parents[2]


def test_every_module_and_every_test_file_is_there() -> None:
    named = {name for module, tests in files_by_module().items() for name in (module, *tests)}
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_every_survivor_is_of_a_module_that_is_run_and_has_a_reason() -> None:
    modules = files_by_module()
    assert [one for one, why in reasons().items() if one.module not in modules or not why] == []
