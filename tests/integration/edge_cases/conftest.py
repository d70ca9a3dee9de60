"""What the rows on both API servers share."""

from tests.integration.edge_cases.servers import api_server

__all__ = ["api_server"]
