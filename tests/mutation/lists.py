"""The two lists of the mutation run: which tests are a module's, and what may survive them."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """One changed expression, by what stays the same when other lines of the function change."""

    module: str
    function: str
    before: str
    after: str


def files_by_module() -> dict[str, list[str]]:
    """The test files that have to notice each change of a module."""
    return {module: files.split() for module, files in _rows("modules.tsv")}


def reasons() -> dict[Mutant, str]:
    """Why no test has to notice a change."""
    return {Mutant(*row[:4]): row[4] for row in _rows("survivors.tsv")}


def _rows(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (HERE / name).read_text().splitlines()]
