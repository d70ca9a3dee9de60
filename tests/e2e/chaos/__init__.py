"""All controllers together: whatever happens, the cloud ends up as the cluster asks."""
