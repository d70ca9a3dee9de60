"""Providers that are wrong in one place: what an author may get wrong, and which test says so."""

from dataclasses import dataclass

from .balancers import BALANCERS
from .calls import CALLS
from .machines import INSTANCES, PROVIDER
from .routes_and_volumes import ROUTES, VOLUMES

ROWS = {
    "instances.py": INSTANCES,
    "api.py": CALLS,
    "load_balancers.py": BALANCERS,
    "routes.py": ROUTES,
    "volumes.py": VOLUMES,
    "provider.py": PROVIDER,
}


@dataclass(frozen=True)
class Mutant:
    """`before` stands once in `file` of the package that `provider new` writes."""

    file: str
    fault: str
    before: str
    after: str
    caught_by: str  # area and test, with or without its parameters


MUTANTS = [Mutant(file, *row) for file, rows in ROWS.items() for row in rows]
