"""Checks of the flags and of this machine."""
