"""The status page, also in a real browser."""
