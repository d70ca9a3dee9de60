"""Load balancers: what all kinds share, and a folder for each kind."""
