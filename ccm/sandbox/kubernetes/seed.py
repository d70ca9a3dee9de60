"""What a fresh cluster holds before anyone creates anything."""

from __future__ import annotations

from ccm.sandbox.kubernetes.kinds import NAMESPACE, SERVICE
from ccm.sandbox.kubernetes.place import Place
from ccm.sandbox.kubernetes.writes import Writes

# The first of the cluster's network, as on any cluster.
ADDRESS = "10.96.0.1"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def seed(writes: Writes) -> None:
    """Create the namespaces and the Service of the API server itself."""
    for name in NAMESPACES:
        writes.create(Place(NAMESPACE), {"metadata": {"name": name}})
    labels = {"component": "apiserver", "provider": "kubernetes"}
    port = {"name": "https", "port": 443, "targetPort": 6443}
    spec = {"clusterIP": ADDRESS, "ports": [port]}
    service = {"metadata": {"name": "kubernetes", "labels": labels}, "spec": spec}
    writes.create(Place(SERVICE, "default"), service)
