"""Load balancers of Azure: one for all Services of a cluster, and one for the internal ones."""
