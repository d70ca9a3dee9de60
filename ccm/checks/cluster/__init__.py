"""Checks of what the API server says."""
