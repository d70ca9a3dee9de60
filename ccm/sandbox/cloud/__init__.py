"""A simulated cloud in a process of its own: an HTTP API that can also be slow, full or wrong."""
