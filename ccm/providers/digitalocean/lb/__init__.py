"""DigitalOcean's load balancers."""
