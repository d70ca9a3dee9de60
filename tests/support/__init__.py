"""What the tests of all controllers share."""
