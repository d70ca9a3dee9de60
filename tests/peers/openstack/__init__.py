"""OpenStack: upstream's controller and ours in projects of one cloud."""
