"""Google Compute Engine, by its REST API."""
