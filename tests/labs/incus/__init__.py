"""A real Incus with OVN in private namespaces."""
