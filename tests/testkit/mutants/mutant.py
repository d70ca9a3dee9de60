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
