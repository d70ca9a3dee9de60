"""The Pods: a DaemonSet or a Deployment on the control plane, with no more than they need."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePosixPath

from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.manifests.rbac import Document, metadata
from ccm.manifests.subjects import NAME
from ccm.model.objects import Json
from ccm.settings import Settings

LABELS = {"app.kubernetes.io/name": NAME}
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
USER = 65532  # nobody in particular; not root
RUN = "/run/ccm"
PLACES = ("XDG_RUNTIME_DIR", "HOME", "TMPDIR")
"""What is in the one directory that can be written: the sockets, also for commands that somebody
runs in the Pod, and what libraries look for when they are loaded, though nothing is put there."""

TOLERATIONS = (
    {"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"},
    # These are on a node until we, or a network that waits for us, have done our part.
    {"key": "node.cloudprovider.kubernetes.io/uninitialized", "operator": "Exists"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
)

_OTHERS = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_OTHERS]}}
"""A replica on the same node would end with it."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What somebody who deploys decides; `arguments` are the flags of `start`."""

    kind: str
    namespace: str
    image: str
    replicas: int
    secret: str
    arguments: Sequence[str]


def workload(wanted: Workload, settings: Settings) -> Iterator[Document]:
    """The controller of the Pods, and what keeps a drain of nodes from ending all of them."""
    if wanted.kind == "deployment" and wanted.replicas > 1:
        yield Document(_disruption_budget(wanted))
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
    yield Document(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet" if is_daemon else "Deployment",
            "metadata": metadata(NAME, wanted.namespace),
            "spec": spec,
        },
        [
            "One replica leads, the others stand by, warm. On the host's network and DNS: before",
            "the first nodes are initialised there is neither a pod network nor a cluster DNS.",
        ],
    )


def _disruption_budget(wanted: Workload) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(NAME, wanted.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
    }


def _pod(wanted: Workload, settings: Settings) -> Json:
    return {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "nodeSelector": {CONTROL_PLANE: ""},
        "tolerations": [*TOLERATIONS],
        **({"affinity": APART} if wanted.kind == "deployment" else {}),
        "terminationGracePeriodSeconds": round(settings.shutdown_timeout) + 10,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(wanted, settings)],
        "volumes": [{"name": "run", "emptyDir": {}}, *_config_volume(wanted, settings)],
    }


def _container(wanted: Workload, settings: Settings) -> Json:
    mounts: list[Json] = [{"name": "run", "mountPath": RUN}]
    if settings.cloud_config:
        where = _directory_of(settings.cloud_config)
        mounts.append({"name": "cloud-config", "mountPath": where, "readOnly": True})
    return {
        "name": NAME,
        "image": wanted.image,
        "command": ["ccm-supervisor", "start"],
        "args": [*wanted.arguments],
        "env": [{"name": name, "value": RUN} for name in PLACES],
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
        fault = ConfigurationFault(
            "--cloud-config", problem, "use for example /etc/cloud/cloud.conf"
        )
        raise ConfigurationFaults([fault])
    return str(path.parent)


def _config_volume(wanted: Workload, settings: Settings) -> Iterator[Json]:
    if settings.cloud_config:
        yield {"name": "cloud-config", "secret": {"secretName": wanted.secret}}


def _probes(settings: Settings) -> Json:
    if not settings.secure_port:
        return {}
    address = ip_address(settings.bind_address)
    host = {} if address.is_unspecified else {"host": str(address)}

    def ask(path: str) -> Json:
        return {
            "httpGet": {**host, "path": path, "port": settings.secure_port, "scheme": "HTTPS"},
            "timeoutSeconds": 5,
        }

    return {
        "ports": [{"name": "https", "containerPort": settings.secure_port}],
        "livenessProbe": {**ask("/livez"), "initialDelaySeconds": 15},
        "readinessProbe": ask("/readyz"),
    }
