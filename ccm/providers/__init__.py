"""Shipped cloud providers: one folder each, imported only when chosen."""
