"""The route duty: a route in the cloud's network to the pods of each Node."""
