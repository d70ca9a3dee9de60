"""Which labels a Node gets from its machine: type, zone, region, and what the cloud adds."""

import re
from collections.abc import Mapping

from ccm.model.cloud import Instance

_TYPE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_RESERVED = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")


def missing_labels(instance: Instance, present: Mapping[str, str]) -> dict[str, str]:
    """What to add or change on a Node that carries `present`.

    Type, zone and region overwrite, under the GA and the beta key, unless the cloud does not say.
    A label that the cloud adds on top never overwrites, and never a reserved key.
    """
    wanted: dict[str, str] = {}
    for keys, value in ((_TYPE, instance.type), (_ZONE, instance.zone), (_REGION, instance.region)):
        wanted |= dict.fromkeys(keys, value) if value else {}
    for key, value in instance.labels.items():
        if not _RESERVED.search(key) and key not in present:
            wanted.setdefault(key, value)
    return {key: value for key, value in wanted.items() if present.get(key) != value}
