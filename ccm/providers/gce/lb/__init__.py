"""Load balancers: target pools for external ones, backend services for internal ones."""
