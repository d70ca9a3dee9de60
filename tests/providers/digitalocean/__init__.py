"""DigitalOcean, against a server whose shapes are the vendor's."""
