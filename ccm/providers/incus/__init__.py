"""Incus: containers and virtual machines, OVN's load balancers, routes on NICs and volumes."""
