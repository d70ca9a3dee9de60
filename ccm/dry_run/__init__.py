"""What all controllers would do now, found out on a copy of the cluster and with a deaf cloud."""
