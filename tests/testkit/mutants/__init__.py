"""Providers that are wrong in one place: what an author may get wrong, and which test says so."""

from .balancers import BALANCERS
from .calls import CALLS
from .machines import INSTANCES, PROVIDER
from .mutant import Mutant
from .routes_and_volumes import ROUTES_AND_VOLUMES

MUTANTS = (*INSTANCES, *CALLS, *BALANCERS, *ROUTES_AND_VOLUMES, *PROVIDER)

__all__ = ["MUTANTS", "Mutant"]
