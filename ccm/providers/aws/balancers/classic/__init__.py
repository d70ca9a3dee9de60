"""Classic load balancers: one object with everything in it, and a security group of its own."""
