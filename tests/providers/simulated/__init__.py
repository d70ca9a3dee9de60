"""The simulated provider against a real simulated cloud, over HTTP."""
