"""The provider for the simulated cloud of the sandbox; also an example to start a provider from."""
