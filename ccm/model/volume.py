"""A read-only, lenient view on the raw JSON of a PersistentVolume."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccm.model.node import Json, mapping, text


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """What the volume-label controller and providers read."""

    raw: Json

    @property
    def name(self) -> str:
        return text(mapping(self.raw.get("metadata")).get("name"))

    @property
    def uid(self) -> str:
        return text(mapping(self.raw.get("metadata")).get("uid"))

    @property
    def labels(self) -> Mapping[str, str]:
        return mapping(mapping(self.raw.get("metadata")).get("labels"))

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("spec"))

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
