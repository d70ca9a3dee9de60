"""The API servers of the rows that one decides."""

from tests.integration.edge_cases.servers import api_server

__all__ = ["api_server"]
