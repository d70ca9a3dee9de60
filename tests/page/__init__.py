"""The page for people, read by a real browser."""
