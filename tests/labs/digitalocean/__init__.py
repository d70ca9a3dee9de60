"""A DigitalOcean to test with: its state is ours, its shapes are checked against the vendor's."""
