"""The fields the real server knows, so that a misspelt one is dropped here as it is there.

Only what is listed is checked: deeper members, and kinds that are not here, are taken as they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ccm.sandbox.kubernetes.kinds import (
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    SERVICE,
    Kind,
)
from ccm.sandbox.kubernetes.objects import Object

Fields = Mapping[str, frozenset[str]]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OBJECT = _names("apiVersion kind metadata spec status")
_METADATA = _names(
    "name generateName namespace selfLink uid resourceVersion generation creationTimestamp"
    " deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers"
    " managedFields"
)
_CONDITION = _names("type status lastTransitionTime reason message")
_REFERENCE = _names("kind namespace name uid apiVersion resourceVersion fieldPath")

# Dotted path of an object, or of the members of a list, to the names it may have.
_FIELDS: Mapping[str, Fields] = {
    NODE.plural: {
        "": _OBJECT,
        "metadata": _METADATA,
        "spec": _names("podCIDR podCIDRs providerID unschedulable taints configSource externalID"),
        "spec.taints": _names("key value effect timeAdded"),
        "status": _names(
            "capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images"
            " volumesInUse volumesAttached config runtimeHandlers features declaredFeatures"
        ),
        "status.addresses": _names("type address"),
        "status.conditions": _CONDITION | {"lastHeartbeatTime"},
    },
    SERVICE.plural: {
        "": _OBJECT,
        "metadata": _METADATA,
        "spec": _names(
            "ports selector clusterIP clusterIPs type externalIPs sessionAffinity loadBalancerIP"
            " loadBalancerSourceRanges externalName externalTrafficPolicy healthCheckNodePort"
            " publishNotReadyAddresses sessionAffinityConfig ipFamilies ipFamilyPolicy"
            " allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy"
            " trafficDistribution"
        ),
        "spec.ports": _names("name protocol appProtocol port targetPort nodePort"),
        "status": _names("loadBalancer conditions"),
        "status.loadBalancer": _names("ingress"),
        "status.loadBalancer.ingress": _names("ip hostname ipMode ports"),
        "status.loadBalancer.ingress.ports": _names("port protocol error"),
        "status.conditions": _CONDITION | {"observedGeneration"},
    },
    PERSISTENT_VOLUME.plural: {
        "": _OBJECT,
        "metadata": _METADATA,
        "spec": _names(
            "capacity accessModes claimRef persistentVolumeReclaimPolicy storageClassName"
            " mountOptions volumeMode nodeAffinity volumeAttributesClassName"
            " gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd iscsi cinder"
            " cephfs fc flocker flexVolume azureFile vsphereVolume quobyte azureDisk"
            " photonPersistentDisk portworxVolume scaleIO local storageos csi"
        ),
        "spec.claimRef": _REFERENCE,
        "spec.nodeAffinity": _names("required"),
        "status": _names("phase message reason lastPhaseTransitionTime"),
    },
    NAMESPACE.plural: {
        "": _OBJECT,
        "metadata": _METADATA,
        "spec": _names("finalizers"),
        "status": _names("phase conditions"),
    },
    LEASE.plural: {
        "": _names("apiVersion kind metadata spec"),
        "metadata": _METADATA,
        "spec": _names(
            "holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions strategy"
            " preferredHolder"
        ),
    },
    EVENT.plural: {
        "": _names(
            "apiVersion kind metadata involvedObject reason message source firstTimestamp"
            " lastTimestamp count type eventTime series action related reportingComponent"
            " reportingInstance"
        ),
        "metadata": _METADATA,
        "involvedObject": _REFERENCE,
        "related": _REFERENCE,
        "source": _names("component host"),
        "series": _names("count lastObservedTime"),
    },
}


def drop_unknown(kind: Kind, obj: Object) -> list[str]:
    """Remove in place the fields that the kind does not have and return their paths."""
    dropped = []
    for path, known in _FIELDS.get(kind.plural, {}).items():
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
