"""Network load balancers: one target group for each listener, rules in the nodes' groups."""
