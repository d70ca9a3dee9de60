"""The node duty: give each Node what the cloud knows about its machine."""
