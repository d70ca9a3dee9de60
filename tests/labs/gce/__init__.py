"""Google Compute Engine on loopback."""
