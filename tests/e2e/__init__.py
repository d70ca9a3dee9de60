"""Real processes and real signals, against a real API server."""
