"""One thing that an author of a provider may get wrong."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`before` stands once in `file` of the package that `provider new` writes."""

    fault: str
    file: str
    before: str
    after: str
    caught_by: str  # area and test, with or without its parameters


def mutants_of(file: str, *rows: tuple[str, str, str, str]) -> tuple[Mutant, ...]:
    """A mutant for each row of fault, before, after and caught by."""
    return tuple(Mutant(row[0], file, *row[1:]) for row in rows)
