"""What the tests of the lifecycle controller share."""

from tests.edge_cases.servers import api_server

__all__ = ["api_server"]
