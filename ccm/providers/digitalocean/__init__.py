"""DigitalOcean: droplets, load balancers, the firewall of node ports, volumes; no routes."""
