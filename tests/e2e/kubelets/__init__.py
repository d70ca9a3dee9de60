"""Real kubelets, without containers, and kube-controller-manager beside the product.

Each test has machines and Nodes of its own in one cluster.
"""
