"""The provider of vSphere."""
