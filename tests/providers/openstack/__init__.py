"""The provider of OpenStack."""
