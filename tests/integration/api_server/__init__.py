"""How a Kubernetes API server behaves: one suite for the sandbox and for the real one."""
