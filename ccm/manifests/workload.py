"""The Pods, as a DaemonSet or a Deployment on the control plane; and all objects as YAML."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any

import yaml

from ccm.errors import ConfigurationFault
from ccm.manifests.rbac import APP_NAME, Manifest, metadata
from ccm.model.objects import SHUTDOWN_TAINT, UNINITIALIZED_TAINT, Json
from ccm.settings import Settings

INLINE_LIST_LENGTH = 72  # characters
LABELS = {"app.kubernetes.io/name": APP_NAME}
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
USER = 65532  # any but root
RUN = "/run/ccm"  # in memory: there are tokens in it
DIRECTORY_VARIABLES = ("XDG_RUNTIME_DIR", "HOME", "TMPDIR")
"""Variables that name the one writable directory: for the sockets, also of commands that are run in
the Pod, and for libraries that want such a directory when they are loaded."""

TOLERATIONS = (
    {"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"},
    # These are on a node until we, or a network that waits for us, have done our part.
    {"key": UNINITIALIZED_TAINT, "operator": "Exists"},
    {"key": SHUTDOWN_TAINT, "operator": "Exists"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    # Of kube-controller-manager while a node has no route: our own route controller takes it away.
    {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists"},
)

_REPLICAS = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
ANTI_AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_REPLICAS]}}
"""Replicas on one node would fail together."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The options of a deployment; `arguments` are the flags of `start`."""

    kind: str
    namespace: str
    image: str
    replicas: int
    secret: str
    node_selector: Mapping[str, str]
    arguments: Sequence[str]


def workload(wanted: Workload, settings: Settings) -> Iterator[Manifest]:
    """The DaemonSet or Deployment, and the PodDisruptionBudget of the latter."""
    if wanted.kind == "deployment" and wanted.replicas > 1:
        yield Manifest(_disruption_budget(wanted))
    is_daemon = wanted.kind == "daemonset"
    # Two Pods cannot have the same port of a node: the old one goes before the new one comes.
    update: Json = {"maxUnavailable": 1} if is_daemon else {"maxSurge": 0, "maxUnavailable": 1}
    spec = {
        **({} if is_daemon else {"replicas": wanted.replicas}),
        "selector": {"matchLabels": LABELS},
        "updateStrategy" if is_daemon else "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": update,
        },
        "template": {"metadata": {"labels": LABELS}, "spec": _pod(wanted, settings)},
    }
    yield Manifest(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet" if is_daemon else "Deployment",
            "metadata": metadata(APP_NAME, wanted.namespace),
            "spec": spec,
        },
        [
            "One replica leads, the others stand by, warm. On the host's network and DNS: before",
            "the first nodes are initialized there is neither a pod network nor a cluster DNS.",
        ],
    )


def _disruption_budget(wanted: Workload) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(APP_NAME, wanted.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
    }


def _pod(wanted: Workload, settings: Settings) -> Json:
    volumes: list[Json] = [{"name": "run", "emptyDir": {"medium": "Memory"}}]
    if settings.cloud_config:
        volumes.append({"name": "cloud-config", "secret": {"secretName": wanted.secret}})
    return {
        "serviceAccountName": APP_NAME,
        "priorityClassName": "system-cluster-critical",
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "nodeSelector": {**wanted.node_selector},
        "tolerations": [*TOLERATIONS],
        **({"affinity": ANTI_AFFINITY} if wanted.kind == "deployment" else {}),
        "terminationGracePeriodSeconds": round(settings.shutdown_timeout) + 10,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(wanted, settings)],
        "volumes": volumes,
    }


def _container(wanted: Workload, settings: Settings) -> Json:
    mounts: list[Json] = [{"name": "run", "mountPath": RUN}]
    if settings.cloud_config:
        where = _directory_of(settings.cloud_config)
        mounts.append({"name": "cloud-config", "mountPath": where, "readOnly": True})
    return {
        "name": APP_NAME,
        "image": wanted.image,
        "command": ["ccm-supervisor", "start"],
        "args": [*wanted.arguments],
        "env": [{"name": name, "value": RUN} for name in DIRECTORY_VARIABLES],
        **_probes(settings),
        "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _directory_of(cloud_config: str) -> str:
    """Where the Secret goes; it hides what the image has in that place."""
    path = PurePosixPath(cloud_config)
    if not path.is_absolute() or len(path.parts) < 4:
        problem = f"{cloud_config} is not in a directory of its own, which a Secret is mounted at"
        raise ConfigurationFault("--cloud-config", problem, "use /etc/cloud/cloud.conf or similar")
    return str(path.parent)


def _probes(settings: Settings) -> Json:
    if not settings.secure_port:
        return {}
    address = ip_address(settings.bind_address)
    host = {} if address.is_unspecified else {"host": str(address)}

    def probe(path: str) -> Json:
        return {
            "httpGet": {**host, "path": path, "port": settings.secure_port, "scheme": "HTTPS"},
            "timeoutSeconds": 5,
        }

    return {
        "ports": [{"name": "https", "containerPort": settings.secure_port}],
        "livenessProbe": {**probe("/livez"), "initialDelaySeconds": 15},
        # Each Pod of a rolling update waits for the next probe: the kubelet's first is too early.
        "readinessProbe": {**probe("/readyz"), "periodSeconds": 2},
    }


class _Dumper(yaml.SafeDumper):
    """YAML for people: short lists of words on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        are_words = all(isinstance(item, str) and not item.startswith("-") for item in sequence)
        is_short = are_words and sum(map(len, sequence)) < INLINE_LIST_LENGTH
        return super().represent_sequence(tag, sequence, flow_style=is_short)


def to_yaml(head: str, manifests: Iterable[Manifest]) -> str:
    """One YAML stream, nothing sorted; `head` is its first comment."""
    parts = [f"# {head}\n"]
    for manifest in manifests:
        comments = "".join(f"# {line}\n" for line in manifest.comments)
        body = yaml.dump(manifest.body, Dumper=_Dumper, sort_keys=False, width=100)
        parts.append(f"---\n{comments}{body}")
    return "".join(parts)
