"""Flags about the cloud, the Kubernetes API and the lease."""

from dataclasses import dataclass

from ccm.settings.declaration import (
    AMOUNT,
    BOOLEAN,
    COUNT,
    FILE,
    NAME,
    NETWORKS,
    PAUSE,
    PERIOD,
    RATE,
    RATES,
    SHARE,
    TEXT,
    choice,
    ignored,
    ours,
    upstream,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"
CONTENT_TYPE = choice(
    PROTOBUF, "application/json", "application/cbor", "application/yaml", metavar="TYPE"
)


@dataclass(frozen=True)
class CloudFlags:
    cloud_provider: str = upstream("", TEXT, "Cloud to use; see the command 'providers'.")
    cloud_config: str = upstream("", FILE, "Configuration file of the provider.")
    cluster_name: str = upstream("kubernetes", NAME, "Name that marks this cluster's objects.")
    cluster_cidr: tuple[str, ...] = upstream(
        (), NETWORKS, "Network of all pods; routes inside it are ours to delete."
    )
    allow_untagged_cloud: bool = upstream(
        False,
        BOOLEAN,
        "Start although the cloud's objects carry no cluster ID.",
        deprecated="tag the cloud's objects with the cluster's ID",
    )
    allocate_node_cidrs: bool = ignored(
        False, BOOLEAN, "Pod networks are given out by kube-controller-manager."
    )
    cidr_allocator_type: str = ignored(
        "RangeAllocator", TEXT, "Pod networks are given out by kube-controller-manager."
    )
    external_cloud_volume_plugin: str = ignored("", TEXT, "There are no in-tree volume plugins.")
    cloud_rate: dict[str, float] = ours(
        {}, RATES, "Calls a second per budget class, instead of the provider's quota."
    )
    cloud_reserve: float = ours(
        0.0, SHARE, "Share of each quota that is left to other users of the account."
    )
    cloud_call_timeout: float = ours(30.0, PERIOD, "Longest a single cloud call may take.")


@dataclass(frozen=True)
class KubeFlags:
    kubeconfig: str = upstream("", FILE, "Kubeconfig file; without it, the Pod's own account.")
    master: str = upstream("", TEXT, "API server address; overrides the kubeconfig's.")
    kube_api_qps: float = upstream(
        0.0, RATE, "Requests a second per process; 0 = no limit.", theirs="20"
    )
    kube_api_burst: int = upstream(0, AMOUNT, "Requests at once above --kube-api-qps.", theirs="30")
    kube_api_content_type: str = ignored(
        PROTOBUF,
        CONTENT_TYPE,
        "Requests are JSON: only the fields that are needed are read and written.",
    )
    use_service_account_credentials: bool = upstream(
        False, BOOLEAN, "Each controller acts as a service account of its own."
    )
    min_resync_period: float = ignored(
        12 * 3600.0, PAUSE, "Nothing is listed again on a schedule; each duty has its own pass."
    )
    kube_api_in_flight: int = ours(32, COUNT, "Requests one process keeps in flight.")
    watch_idle_limit: float = ours(
        70.0, PERIOD, "A watch that is silent for longer is asked for anew."
    )


@dataclass(frozen=True)
class ElectionFlags:
    leader_elect: bool = upstream(True, BOOLEAN, "Act only while holding the lease.")
    leader_elect_lease_duration: float = upstream(
        15.0, PERIOD, "How long others wait after the last renewal they saw."
    )
    leader_elect_renew_deadline: float = upstream(
        10.0, PERIOD, "Without a renewal for this long, the leader stops acting."
    )
    leader_elect_retry_period: float = upstream(2.0, PERIOD, "Time between two tries.")
    leader_elect_resource_lock: str = upstream(
        "leases", choice("leases"), "Kind of object that is held."
    )
    leader_elect_resource_name: str = upstream(
        "cloud-controller-manager", NAME, "Name of the Lease."
    )
    leader_elect_resource_namespace: str = upstream("kube-system", NAME, "Namespace of the Lease.")
    enable_leader_migration: bool = upstream(
        False, BOOLEAN, "Hold a second lease for controllers that move from another component."
    )
    leader_migration_config: str = upstream(
        "", FILE, "Which controllers move; without it, upstream's default."
    )
