"""Azure: the machines, balancers, routes and disks of a resource group, by Resource Manager."""
