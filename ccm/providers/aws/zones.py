"""What AWS says about zones; read once."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from threading import Lock

from ccm.errors import CloudError
from ccm.model.objects import Json, text
from ccm.providers.aws.client import AwsApi

ZONE_ID = "topology.k8s.aws/zone-id"
REGULAR = "availability-zone"


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone; its ID means the same place in every account, `is_regular` no Local Zone and such."""

    id: str
    is_regular: bool


class Zones:
    """Zones by name; one that is not known yet has them all read again."""

    def __init__(self, api: AwsApi) -> None:
        self._api = api
        self._zones: Mapping[str, Zone] = {}
        self._lock = Lock()

    def named(self, names: Collection[str]) -> Mapping[str, Zone] | CloudError:
        """At least those of `names` that AWS knows, or why they could not be read."""
        with self._lock:
            if not set(names) <= self._zones.keys():
                try:
                    self._zones = self._read()
                except CloudError as error:
                    return error
            return self._zones

    def _read(self) -> dict[str, Zone]:
        answer = self._api.call("ec2:DescribeAvailabilityZones", AllAvailabilityZones=True)
        zones = answer.get("AvailabilityZones") or []
        return {text(zone.get("ZoneName")): _read_zone(zone) for zone in zones}


def _read_zone(record: Json) -> Zone:
    return Zone(text(record.get("ZoneId")), (text(record.get("ZoneType")) or REGULAR) == REGULAR)
