"""What the rows on both API servers share."""

from tests.edge_cases.servers import api_server
from tests.edge_cases.services import desk

__all__ = ["api_server", "desk"]
