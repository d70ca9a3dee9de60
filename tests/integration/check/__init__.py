"""Faults planted in a real cluster, its cloud or this machine, and what `check` says of them."""
