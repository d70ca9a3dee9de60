"""Azure's Resource Manager on loopback."""
