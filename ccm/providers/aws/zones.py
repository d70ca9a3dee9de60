"""The IDs of zones, which mean the same place in every account; read once."""

from collections.abc import Mapping
from threading import Lock

from ccm.errors import CloudError
from ccm.model.objects import text
from ccm.providers.aws.client import AwsApi

ZONE_ID = "topology.k8s.aws/zone-id"


class Zones:
    """Zone names to zone IDs; a zone that is not known yet has them read again."""

    def __init__(self, api: AwsApi) -> None:
        self._api = api
        self._ids: Mapping[str, str] = {}
        self._lock = Lock()

    def ids(self, names: set[str]) -> Mapping[str, str] | CloudError:
        """The IDs of at least those of `names` that AWS knows, or why they could not be read."""
        with self._lock:
            if not names <= self._ids.keys():
                try:
                    self._ids = self._read()
                except CloudError as error:
                    return error
            return self._ids

    def _read(self) -> dict[str, str]:
        answer = self._api.call("ec2:DescribeAvailabilityZones", AllAvailabilityZones=True)
        zones = answer.get("AvailabilityZones") or []
        return {text(zone.get("ZoneName")): text(zone.get("ZoneId")) for zone in zones}
