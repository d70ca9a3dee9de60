"""A read-only, lenient view of the raw JSON of a PersistentVolume, and its zones as text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.model.objects import Json, KubernetesObject, mapping, objects, text

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
LEGACY_ZONE = "failure-domain.beta.kubernetes.io/zone"
LEGACY_REGION = "failure-domain.beta.kubernetes.io/region"

ZONE_SEPARATOR = "__"  # between the zones in a label

INITIALIZER = "pvlabel.kubernetes.io"
"""Waited for this controller's labels before Kubernetes 1.14; newer servers drop it."""

PLACEHOLDER = "placeholder-for-provisioning"
"""In place of the volume's ID while the volume is being created (upstream's word)."""

LEGACY_SOURCES = (
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cinder",
    "gcePersistentDisk",
    "vsphereVolume",
)
"""The members of `spec` that hold a cloud's volume without a CSI driver."""


@dataclass(frozen=True, slots=True)
class PersistentVolume(KubernetesObject):
    """What the volume-label controller and providers read."""

    KIND = "PersistentVolume"

    @property
    def initializers(self) -> list[Json]:
        """Initializers that are still pending (before 1.14): entries with a name."""
        return objects(mapping(self.meta.get("initializers")).get("pending"))

    @property
    def waits_for_labels(self) -> bool:
        return any(pending.get("name") == INITIALIZER for pending in self.initializers)

    @property
    def csi_driver(self) -> str:
        return text(mapping(self.spec.get("csi")).get("driver"))

    @property
    def csi_handle(self) -> str:
        """The driver's own ID of the volume."""
        return text(mapping(self.spec.get("csi")).get("volumeHandle"))

    @property
    def node_affinity(self) -> Mapping[str, Any] | None:
        value = self.spec.get("nodeAffinity")
        return value if isinstance(value, dict) else None


def zones_text(zones: Iterable[str]) -> str:
    """Several zones as the value of a label, always the same for the same zones."""
    return ZONE_SEPARATOR.join(sorted(set(zones)))


def read_zones(zones: str) -> frozenset[str]:
    """The zones in the value of a label; ValueError when one of them is empty."""
    found = frozenset(zone.strip() for zone in zones.split(ZONE_SEPARATOR))
    if "" in found:
        raise ValueError(f"{zones!r} has an empty zone in it")
    return found
