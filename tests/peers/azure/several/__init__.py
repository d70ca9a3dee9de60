"""Several load balancers: what the comparison on Azure has of its own."""
