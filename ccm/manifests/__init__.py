"""What runs the supervisor inside a cluster, as YAML: identities, their rights, and the Pods."""
