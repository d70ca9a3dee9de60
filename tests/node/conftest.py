"""How Hypothesis works here, and the API servers of the rows that one decides."""

from hypothesis import settings

from tests.edge_cases.servers import api_server

__all__ = ["api_server"]

# No time limit per example: on a shared machine it measures the neighbours.
settings.register_profile("node", deadline=None, max_examples=100, database=None, print_blob=True)
settings.load_profile("node")
