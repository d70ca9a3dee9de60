"""What the worlds of all controllers' tests are made of."""
