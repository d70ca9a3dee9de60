"""The supervisor of a multi-process Kubernetes cloud controller manager."""

__version__ = "0.1.0"
