"""What all controllers would do now, on a copy of the cluster and with a read-only cloud."""
