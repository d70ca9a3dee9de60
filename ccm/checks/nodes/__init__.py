"""Checks of the Nodes and Services, against the flags and what the cloud says."""
