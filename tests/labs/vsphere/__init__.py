"""A vCenter on loopback."""
