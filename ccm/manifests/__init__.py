"""Manifests to run the supervisor in a cluster: service accounts, RBAC and the workload."""
