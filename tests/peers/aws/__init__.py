"""AWS: upstream's controller and ours in one emulated account."""
