"""Checks of the provider and of what the cloud says."""
