"""Tests; the folder names say against what they run."""
