"""What each kind does of its own when it is written."""
