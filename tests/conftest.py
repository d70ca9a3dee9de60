"""What all tests share: the real API server's fixtures."""

pytest_plugins = ["tests.kube.fixtures"]
