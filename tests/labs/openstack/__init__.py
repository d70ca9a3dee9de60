"""OpenStack."""
