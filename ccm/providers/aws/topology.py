"""Where instances are in AWS's network: labels for the types that report it, and never an error."""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock

from ccm.cloud.lookup import batches
from ccm.errors import CloudError, Denied
from ccm.model.objects import MAX_LABEL, text
from ccm.providers.aws.client import (
    ID_MALFORMED,
    ID_NOT_FOUND,
    AwsApi,
    AwsError,
    call_without_wrong_ids,
)

log = logging.getLogger(__name__)

LAYER_LABEL = "topology.k8s.aws/network-node-layer-"
DEFAULT_TYPES = r"^((hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?|g[0-9]+e)\."
"""The types for which AWS reports it; `UnsupportedOperation` is what it says in other regions.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-topology-prerequisites.html
"""
MAX_INSTANCES_PER_CALL = 100
MAX_LAYERS = 16  # of one instance; AWS has three
LABELS_TTL = 24 * 3600.0  # seconds; they stay for as long as an instance runs
NOTHING_TTL = 600.0  # seconds; an instance that starts has no place yet
ERROR_PAUSE = 60.0  # seconds without a question after an error
DENIED_PAUSE = 3600.0  # seconds after one that does not pass by itself

Labels = Mapping[str, str]


class NetworkTopology:
    """The labels of instances, as far as they can be read; what is read is cached."""

    def __init__(self, api: AwsApi, types: str) -> None:
        """`types` is a regular expression for the types of instances to ask about."""
        self._api, self._types = api, re.compile(types or DEFAULT_TYPES)
        self._lock = Lock()
        self._cached: dict[str, tuple[float, Labels]] = {}  # by ID, with when they expire
        self._paused_until = float("-inf")
        self._logged_kind = ""

    def labels_of(self, types: Mapping[str, str]) -> Mapping[str, Labels]:
        """The labels of running instances, given by ID with their types; those that have any."""
        some = {item: its_type[:MAX_LABEL] for item, its_type in types.items()}
        wanted = [item for item in some if self._types.search(some[item])]
        if not wanted:
            return {}
        with self._lock:
            now = time.monotonic()
            self._cached = {k: cached for k, cached in self._cached.items() if cached[0] > now}
            missing = [item for item in wanted if item not in self._cached]
            if now >= self._paused_until:
                self._read(missing)
            return {item: self._cached[item][1] for item in wanted if item in self._cached}

    def _read(self, instance_ids: Sequence[str]) -> None:
        try:
            for asked in batches(instance_ids, MAX_INSTANCES_PER_CALL):
                found, now = dict(self._describe(asked)), time.monotonic()
                for item in asked:
                    labels = found.get(item, {})
                    self._cached[item] = now + (LABELS_TTL if labels else NOTHING_TTL), labels
        except CloudError as error:
            is_final = isinstance(error, Denied) or (
                isinstance(error, AwsError) and error.code == "UnsupportedOperation"
            )
            self._paused_until = time.monotonic() + (DENIED_PAUSE if is_final else ERROR_PAUSE)
            kind = type(error).__name__
            if kind != self._logged_kind:
                self._logged_kind = kind
                log.warning("no labels of the network's topology", extra={"why": str(error)})

    def _describe(self, instance_ids: Sequence[str]) -> Iterator[tuple[str, Labels]]:
        name, member = "ec2:DescribeInstanceTopology", "Instances"
        records, _ = call_without_wrong_ids(
            (ID_NOT_FOUND, ID_MALFORMED),
            instance_ids,
            lambda left: self._api.list_pages(name, member, InstanceIds=left),
        )
        for record in records or ():
            listed = islice(record.get("NetworkNodes") or (), MAX_LAYERS)
            nodes = [node for node in listed if isinstance(node, str)]
            labels = {f"{LAYER_LABEL}{layer}": node for layer, node in enumerate(nodes, 1)}
            yield text(record.get("InstanceId")), labels
