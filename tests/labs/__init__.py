"""Real clouds on loopback."""
