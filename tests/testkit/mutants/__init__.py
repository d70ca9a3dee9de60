"""Providers that are wrong in one place: what an author may get wrong, and which test says so."""

from .balancers import BALANCERS
from .calls import CALLS
from .machines import INSTANCES
from .mutant import Mutant
from .routes_and_volumes import ROUTES_AND_VOLUMES
from .start import PROVIDER

MUTANTS = (*INSTANCES, *CALLS, *BALANCERS, *ROUTES_AND_VOLUMES, *PROVIDER)

__all__ = ["MUTANTS", "Mutant"]
