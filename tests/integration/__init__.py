"""Controllers, endpoints and commands in one process, with the sandbox or a real API server."""
