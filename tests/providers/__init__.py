"""Providers, each against a cloud that others wrote, or as near to one as there is."""
