"""The provider for Google Compute Engine, against the lab's server."""
