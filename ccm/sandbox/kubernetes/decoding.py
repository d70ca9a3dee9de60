"""From a request body to an object of the right kind: type, name, known fields, defaults."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ccm.sandbox.kubernetes import kinds
from ccm.sandbox.kubernetes.errors import DecodeError, StatusError, bad_request
from ccm.sandbox.kubernetes.kinds import ResourceKind
from ccm.sandbox.kubernetes.objects import Object, metadata, names
from ccm.sandbox.kubernetes.request import RequestInfo
from ccm.sandbox.kubernetes.strategies.by_kind import strategy_for
from ccm.sandbox.kubernetes.strategies.strategy import decode_metadata

KnownFields = Mapping[str, frozenset[str]]
Refuse = Callable[[str], StatusError]

_OBJECT = names("apiVersion kind metadata spec status")
_METADATA = names(
    "name generateName namespace selfLink uid resourceVersion generation creationTimestamp"
    " deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers"
    " managedFields"
)
_CONDITION = names("type status lastTransitionTime reason message")

# Dotted path of an object, or of the members of a list, to the names it may have.
_FIELDS: Mapping[str, KnownFields] = {
    kinds.NODE.plural: {
        "spec": names("podCIDR podCIDRs providerID unschedulable taints configSource externalID"),
        "spec.taints": names("key value effect timeAdded"),
        "status": names(
            "capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images"
            " volumesInUse volumesAttached config runtimeHandlers features declaredFeatures"
        ),
        "status.addresses": names("type address"),
        "status.conditions": _CONDITION | {"lastHeartbeatTime"},
    },
    kinds.SERVICE.plural: {
        "spec": names(
            "ports selector clusterIP clusterIPs type externalIPs sessionAffinity loadBalancerIP"
            " loadBalancerSourceRanges externalName externalTrafficPolicy healthCheckNodePort"
            " publishNotReadyAddresses sessionAffinityConfig ipFamilies ipFamilyPolicy"
            " allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy"
            " trafficDistribution"
        ),
        "spec.ports": names("name protocol appProtocol port targetPort nodePort"),
        "status": names("loadBalancer conditions"),
        "status.loadBalancer": names("ingress"),
        "status.loadBalancer.ingress": names("ip hostname ipMode ports"),
        "status.loadBalancer.ingress.ports": names("port protocol error"),
        "status.conditions": _CONDITION | {"observedGeneration"},
    },
    kinds.PERSISTENT_VOLUME.plural: {
        "spec": names(
            "capacity accessModes claimRef persistentVolumeReclaimPolicy storageClassName"
            " mountOptions volumeMode nodeAffinity volumeAttributesClassName"
            " gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd iscsi cinder"
            " cephfs fc flocker flexVolume azureFile vsphereVolume quobyte azureDisk"
            " photonPersistentDisk portworxVolume scaleIO local storageos csi"
        ),
        "spec.claimRef": kinds.OBJECT_REFERENCE,
        "spec.nodeAffinity": names("required"),
        "status": names("phase message reason lastPhaseTransitionTime"),
    },
    kinds.NAMESPACE.plural: {
        "spec": names("finalizers"),
        "status": names("phase conditions"),
    },
    kinds.LEASE.plural: {
        "": names("apiVersion kind metadata spec"),
        "spec": names(
            "holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions strategy"
            " preferredHolder"
        ),
    },
    kinds.EVENT.plural: {
        "": names(
            "apiVersion kind metadata involvedObject reason message source firstTimestamp"
            " lastTimestamp count type eventTime series action related reportingComponent"
            " reportingInstance"
        ),
        "involvedObject": kinds.OBJECT_REFERENCE,
        "related": kinds.OBJECT_REFERENCE,
        "source": names("component host"),
        "series": names("count lastObservedTime"),
    },
}


def prune_unknown_fields(kind: ResourceKind, obj: Object) -> list[str]:
    """Remove in place the fields that the kind does not have and return their paths."""
    dropped = []
    own = _FIELDS.get(kind.plural)
    known_fields = {"": _OBJECT, "metadata": _METADATA, **own} if own else {}
    for path, known in known_fields.items():
        for shown, part in _parts(obj, path.split(".") if path else [], ""):
            for name in part.keys() - known:
                del part[name]
                dropped.append(f"{shown}{name}")
    return sorted(dropped)


def _parts(value: Any, names: list[str], shown: str) -> Iterator[tuple[str, Object]]:
    """Yield the objects at a path, through lists, with the path as messages show it."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _parts(item, names, f"{shown.removesuffix('.')}[{index}].")
    elif isinstance(value, dict) and names:
        yield from _parts(value.get(names[0]), names[1:], f"{shown}{names[0]}.")
    elif isinstance(value, dict):
        yield shown, value


def check_type(kind: ResourceKind, obj: Object, refuse: Refuse) -> None:
    """Refuse an object of another kind; one that does not say is of the right kind."""
    named = obj.setdefault("kind", kind.name), obj.setdefault("apiVersion", kind.api_version)
    if named != (kind.name, kind.api_version):
        raise refuse(
            f'{named[0]} in version "{named[1]}" cannot be handled as a {kind.name}: converting'
            f" ({named[1]}.{named[0]}) to ({kind.api_version}.{kind.name}): unknown conversion"
        )


def check_name(info: RequestInfo, obj: Object) -> None:
    """Refuse an object that is not the one the path names."""
    name = metadata(obj).get("name")
    if not name:
        about = f"the name of the object ({info.name} based on URL)"
        raise bad_request(f"{about} was undeterminable: name must be provided")
    if name != info.name:
        about = f"the name of the object ({name})"
        raise bad_request(f"{about} does not match the name on the URL ({info.name})")


def decode(kind: ResourceKind, obj: Object, refuse: Refuse, *, strict: bool) -> None:
    """Refuse what Go's types cannot hold and fill in defaults.

    Unknown fields are dropped, or refused when `strict`.
    """
    context = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}'
    strategy = strategy_for(kind)
    try:
        decode_metadata(obj)
        strategy.decode(obj)
    except DecodeError as error:
        raise refuse(f"{context}: {error}") from error
    strategy.default(obj)
    unknown = prune_unknown_fields(kind, obj)
    if unknown and strict:
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise refuse(f"{context}: strict decoding error: {listed}")
