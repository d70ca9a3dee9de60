"""What the product costs and how fast it is, measured on a real API server."""
