"""The provider of Incus."""
