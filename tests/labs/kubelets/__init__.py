"""True kubelets with containers, around a real control plane, in private namespaces."""
