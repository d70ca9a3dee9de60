"""The node controller: give each Node what the cloud knows about its machine."""
