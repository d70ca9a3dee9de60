"""Frozen values: views on raw Kubernetes JSON, and what a cloud says about its objects."""
