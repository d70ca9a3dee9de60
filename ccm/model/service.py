"""A read-only, lenient view on the raw JSON of a Service."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ccm.model.node import Json, mapping, objects, text

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


class Feature(StrEnum):
    """What a Service may ask of a balancer and not every cloud can do."""

    UDP = "UDP"
    MIXED_PROTOCOLS = "TCP and UDP on one balancer"
    SOURCE_RANGES = "source ranges"
    SESSION_AFFINITY = "session affinity"
    FIXED_IP = "a requested IP"
    DUAL_STACK = "two IP families"


@dataclass(frozen=True, slots=True)
class Service:
    """What the service controller and providers read; everything else in `raw` passes through."""

    raw: Json

    @property
    def _meta(self) -> Mapping[str, object]:
        return mapping(self.raw.get("metadata"))

    @property
    def spec(self) -> Mapping[str, object]:
        return mapping(self.raw.get("spec"))

    @property
    def name(self) -> str:
        return text(self._meta.get("name"))

    @property
    def namespace(self) -> str:
        return text(self._meta.get("namespace"))

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def uid(self) -> str:
        return text(self._meta.get("uid"))

    @property
    def annotations(self) -> Mapping[str, str]:
        return mapping(self._meta.get("annotations"))

    @property
    def finalizers(self) -> list[str]:
        listed = self._meta.get("finalizers")
        return [f for f in listed if isinstance(f, str)] if isinstance(listed, list) else []

    @property
    def is_being_deleted(self) -> bool:
        return bool(self._meta.get("deletionTimestamp"))

    @property
    def type(self) -> str:
        return text(self.spec.get("type"))

    @property
    def load_balancer_class(self) -> str | None:
        value = self.spec.get("loadBalancerClass")
        return value if isinstance(value, str) else None

    @property
    def ports(self) -> list[Json]:
        return objects(self.spec.get("ports"))

    @property
    def ingress(self) -> list[Json]:
        return objects(mapping(mapping(self.raw.get("status")).get("loadBalancer")).get("ingress"))
