"""Elastic Load Balancing: what all types share, Classic Load Balancers, and NLBs."""
