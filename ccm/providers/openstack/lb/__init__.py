"""Load balancers of OpenStack: Octavia's, with Neutron's floating IPs and security groups."""
