"""The service duty: give each Service of type LoadBalancer its balancer, and take it away again."""
