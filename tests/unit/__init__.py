"""Tests of single ideas, in one process: pure decisions, and mechanisms against fakes."""
