"""The route controller: a route in the cloud's network to the pods of each Node."""
