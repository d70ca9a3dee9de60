"""Which labels a Node gets from its machine: type, zone, region, and what the cloud adds.

Type, zone and region each have a GA key and an older beta key.
"""

import re
from collections.abc import Mapping

from ccm.model.cloud import Instance

_TYPE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_PAIRS = (_TYPE, _ZONE, _REGION)
_RESERVED = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")


def missing_labels(instance: Instance, present: Mapping[str, str]) -> dict[str, str]:
    """What to add or change on a Node that carries `present`.

    Type, zone and region overwrite, under the GA and the beta key, unless the cloud does not say.
    A label that the cloud adds on top never overwrites, and never a reserved key.
    """
    wanted: dict[str, str] = {}
    for keys, value in zip(_PAIRS, (instance.type, instance.zone, instance.region), strict=True):
        wanted |= dict.fromkeys(keys, value) if value else {}
    for key, value in instance.labels.items():
        if not _RESERVED.search(key) and key not in present:
            wanted.setdefault(key, value)
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def followed_labels(instance: Instance, present: Mapping[str, str]) -> dict[str, str]:
    """The same for a Node that was initialised before: a beta key that it lacks stays away."""
    dropped = {beta for _, beta in _PAIRS if beta not in present}
    wanted = missing_labels(instance, present)
    return {key: value for key, value in wanted.items() if key not in dropped}


def agreeing_labels(present: Mapping[str, str], beta_wins: bool) -> dict[str, str]:
    """What makes each pair agree: the GA key holds the truth, unless `beta_wins` (upstream's way).

    A missing GA key gets the beta key's value; a missing beta key stays away.
    """
    wanted: dict[str, str] = {}
    for ga, beta in _PAIRS:
        if beta in present and present.get(ga) != present[beta]:
            keep_beta = beta_wins or ga not in present
            wanted |= {ga: present[beta]} if keep_beta else {beta: present[ga]}
    return wanted
