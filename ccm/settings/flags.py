"""Every flag, declared once: a field of `Settings`."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields

from ccm.settings.declaration import Flag, ignored, ours, upstream
from ccm.settings.syntax import (
    ADDRESS,
    BOOLEAN,
    CERT_KEYS,
    CIDRS,
    CONCURRENCY,
    CONTROLLERS,
    DELETION_LIMIT,
    DIRECTORY,
    DURATION,
    DURATION_OR_ZERO,
    FEATURE_GATES,
    FILE,
    KEY_VALUES,
    LEVELS,
    NAME,
    NAMES,
    NON_NEGATIVE,
    PORT,
    POSITIVE,
    PREFIX_LENGTH,
    RATE,
    RATES,
    SHARE,
    SIZE,
    TEXT,
    TLS_CURVES,
    WEB_ADDRESS,
    CertKey,
    choice,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"
CONTENT_TYPE = choice(
    PROTOBUF, "application/json", "application/cbor", "application/yaml", metavar="TYPE"
)
TLS_VERSION = choice(
    "", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13", metavar="VERSION"
)
NO_HTTP2 = "Only HTTP/1.1 is served."
NO_WEBHOOKS = "There are no webhooks."
UNBUFFERED = "Log records are not buffered; they go to standard error."


@dataclass(frozen=True)
class Settings:
    """One value a flag, named like it with underscores; durations are seconds.

    A flag is declared here and nowhere else. One with a `heading` begins a group.
    """

    cloud_provider: str = upstream(
        "", TEXT, "Cloud to use; see the command 'providers'.", heading="Cloud"
    )
    cloud_config: str = upstream("", FILE, "Configuration file of the provider.")
    cluster_name: str = upstream("kubernetes", NAME, "Name that marks this cluster's objects.")
    cluster_cidr: tuple[str, ...] = upstream(
        (), CIDRS, "Pod CIDRs of the cluster; routes are for pod CIDRs inside them only."
    )
    node_cidr_mask_size_ipv4: int = ours(
        0,
        PREFIX_LENGTH,
        "Shortest prefix of a Node's IPv4 pod CIDR; 0: any that is in no other's way.",
    )
    node_cidr_mask_size_ipv6: int = ours(
        0,
        PREFIX_LENGTH,
        "Shortest prefix of a Node's IPv6 pod CIDR; 0: any that is in no other's way.",
    )
    allow_untagged_cloud: bool = upstream(
        False,
        BOOLEAN,
        "Start although the cloud's objects carry no cluster ID.",
        deprecated="tag the cloud's objects with the cluster's ID",
    )
    allocate_node_cidrs: bool = ignored(
        False, BOOLEAN, "kube-controller-manager allocates pod CIDRs."
    )
    cidr_allocator_type: str = ignored(
        "RangeAllocator", TEXT, "kube-controller-manager allocates pod CIDRs."
    )
    external_cloud_volume_plugin: str = ignored("", TEXT, "There are no in-tree volume plugins.")
    cloud_rate: dict[str, float] = ours(
        {}, RATES, "Calls a second per budget class, instead of the provider's quota."
    )
    cloud_reserve: float = ours(
        0.0, SHARE, "Share of each quota that is left to other users of the account."
    )
    cloud_call_timeout: float = ours(30.0, DURATION, "Timeout of a single cloud call.")

    kubeconfig: str = upstream(
        "", FILE, "Kubeconfig file; without it, the Pod's own account.", heading="Kubernetes API"
    )
    master: str = upstream("", TEXT, "API server address; overrides the kubeconfig's.")
    kube_api_qps: float = upstream(
        0.0, RATE, "Requests a second per process; 0 = no limit.", upstream_default="20"
    )
    kube_api_burst: int = upstream(
        0, NON_NEGATIVE, "Requests at once above --kube-api-qps.", upstream_default="30"
    )
    kube_api_content_type: str = ignored(
        PROTOBUF,
        CONTENT_TYPE,
        "Requests are JSON: only the fields that are needed are read and written.",
    )
    use_service_account_credentials: bool = upstream(
        False, BOOLEAN, "Each controller acts as a service account of its own."
    )
    min_resync_period: float = ignored(
        12 * 3600.0,
        DURATION_OR_ZERO,
        "There is no periodic resync; each controller has its own full pass.",
    )
    kube_api_in_flight: int = ours(48, POSITIVE, "Requests one process keeps in flight.")
    watch_idle_limit: float = ours(
        70.0, DURATION, "A watch that is silent for longer is restarted."
    )

    leader_elect: bool = upstream(
        True,
        BOOLEAN,
        "Run the controllers only while holding the lease.",
        heading="Leader election",
    )
    leader_elect_lease_duration: float = upstream(
        15.0, DURATION, "How long candidates wait after the last renewal they observed."
    )
    leader_elect_renew_deadline: float = upstream(
        10.0, DURATION, "Without a renewal for this long, the leader stops acting."
    )
    leader_elect_retry_period: float = upstream(
        2.0, DURATION, "Time between two attempts to acquire or renew the lease."
    )
    leader_elect_resource_lock: str = upstream(
        "leases", choice("leases"), "Kind of the lock object."
    )
    leader_elect_resource_name: str = upstream(
        "cloud-controller-manager", NAME, "Name of the Lease."
    )
    leader_elect_resource_namespace: str = upstream("kube-system", NAME, "Namespace of the Lease.")
    leader_elect_offer_after: float = ours(
        300.0,
        DURATION_OR_ZERO,
        "A leader that cannot run a controller for this long offers the lease to others; "
        "0 = never.",
    )
    enable_leader_migration: bool = upstream(
        False, BOOLEAN, "Contend for a second lease, for controllers that move between components."
    )
    leader_migration_config: str = upstream(
        "", FILE, "LeaderMigrationConfiguration file; if not given, upstream's default."
    )

    controllers: tuple[str, ...] = upstream(
        ("*",),
        CONTROLLERS,
        "Controllers to run; * is all but the provider's own, -NAME turns one off.",
        heading="Controllers",
    )
    configure_cloud_routes: bool = upstream(
        True, BOOLEAN, "Program cloud routes to the nodes' pod CIDRs."
    )
    route_reconciliation_period: float = upstream(
        600.0, DURATION, "Time between two full route reconciliations.", upstream_default="10s"
    )
    concurrent_service_syncs: int = upstream(
        50, POSITIVE, "Services reconciled concurrently.", upstream_default="1"
    )
    controller_start_interval: float = ignored(
        0.0, DURATION_OR_ZERO, "Controllers are processes that start at the same time."
    )
    load_balancer_classes: tuple[str, ...] = ours(
        (), NAMES, "Values of spec.loadBalancerClass that are reconciled as well."
    )
    restrict_service_annotations: bool = ours(
        False,
        BOOLEAN,
        "Refuse Services with annotations that reach what is not their own: security groups, "
        "certificates, addresses, buckets. The provider's page lists them.",
    )
    service_proxy_names: tuple[str, ...] = ours(
        (),
        NAMES,
        "Values of the label service.kubernetes.io/service-proxy-name whose proxy runs on all "
        "nodes, such as cilium; GCE refuses Services with others.",
    )
    machine_marks: tuple[str, ...] = ours(
        (),
        NAMES,
        "What a machine must carry in the cloud to be a Node's, such as tag:workers or any; the "
        "provider's page lists the kinds.",
    )
    legacy_zone_labels: bool = ours(
        False, BOOLEAN, "Label volumes with failure-domain.beta.kubernetes.io, too."
    )

    concurrent_node_syncs: int = upstream(
        0,
        CONCURRENCY,
        "Nodes reconciled concurrently; if not given, --kube-api-in-flight.",
        upstream_default="1",
        heading="Node controllers",
    )
    concurrent_node_status_updates: int = ignored(
        0, NON_NEGATIVE, "Status updates count towards --concurrent-node-syncs."
    )
    concurrent_node_lifecycle_syncs: int = ignored(
        1, POSITIVE, "Nodes that are not ready are asked about page by page."
    )
    node_status_update_frequency: float = upstream(
        300.0, DURATION, "Time in which each node's addresses and labels are refreshed once."
    )
    node_monitor_period: float = upstream(
        5.0, DURATION, "Time between two cloud lookups of nodes that are not Ready."
    )
    node_sync_period: float = ignored(
        0.0, DURATION_OR_ZERO, "Node changes are watched.", deprecated="leave it out"
    )
    prefer_beta_labels: bool = ours(
        False, BOOLEAN, "Where a node's GA and beta labels differ, the beta one wins."
    )
    node_deletion_confirmation_period: float = ours(
        30.0,
        DURATION_OR_ZERO,
        "How long the cloud must report that a machine is gone, unless it reports that it ended for"
        " ever; 0 = in two lookups.",
    )
    node_deletion_limit: str = ours(
        "10,10%",
        DELETION_LIMIT,
        "Nodes deleted per --node-deletion-window at most: the larger of a number and a share.",
    )
    node_deletion_window: float = ours(
        600.0, DURATION, "Time over which --node-deletion-limit counts."
    )
    node_vanish_share: float = ours(
        0.3, SHARE, "When more than this share of nodes vanish at once, none is deleted."
    )

    tags: dict[str, str] = upstream(
        {},
        KEY_VALUES,
        "Tags for the nodes' instances; repeatable.",
        heading="AWS: the controller 'tagging'",
    )
    resources: tuple[str, ...] = upstream((), NAMES, "What gets the tags: instance.")
    tagging_controller_rate_limit: float = upstream(
        0.0, RATE, "Instances compared a second, in the long run; 0 = no limit."
    )
    tagging_controller_burst_limit: int = upstream(
        0, NON_NEGATIVE, "Instances compared at once with --tagging-controller-rate-limit."
    )
    tagging_controller_concurrent_node_syncs: int = upstream(
        0,
        CONCURRENCY,
        "Instances compared concurrently; if not given, --kube-api-in-flight.",
        upstream_default="1",
    )
    tagging_controller_enable_batching: bool = ignored(
        False, BOOLEAN, "Tags are always read and written for many instances at once."
    )

    bind_address: str = upstream(
        "0.0.0.0",
        ADDRESS,
        "Address to listen on; `0.0.0.0` and `::` are all addresses, of IPv4 and of IPv6.",
        heading="HTTPS server",
    )
    secure_port: int = upstream(10258, PORT, "Port of the HTTPS server; 0 = serve nothing.")
    cert_dir: str = upstream(
        "", DIRECTORY, "Where a certificate is made, or found; if not given, it stays in memory."
    )
    tls_cert_file: str = upstream("", FILE, "Certificate, with its chain; read again on change.")
    tls_private_key_file: str = upstream("", FILE, "Key of --tls-cert-file.")
    tls_sni_cert_key: tuple[CertKey, ...] = upstream(
        (), CERT_KEYS, "Certificate for clients that ask for these names; repeatable."
    )
    tls_cipher_suites: tuple[str, ...] = upstream((), NAMES, "Cipher suites up to TLS 1.2.")
    tls_curve_preferences: tuple[int, ...] = upstream((), TLS_CURVES, "Key exchanges, by number.")
    tls_min_version: str = upstream("", TLS_VERSION, "Oldest TLS version; if not given, 1.2.")
    disable_http2_serving: bool = ignored(False, BOOLEAN, NO_HTTP2)
    http2_max_streams_per_connection: int = ignored(0, NON_NEGATIVE, NO_HTTP2)
    permit_port_sharing: bool = upstream(False, BOOLEAN, "Listen with SO_REUSEPORT.")
    permit_address_sharing: bool = ignored(False, BOOLEAN, "SO_REUSEADDR is always set.")
    profiling: bool = upstream(True, BOOLEAN, "Serve /debug to those who may read it.")
    docs_url: str = ours(
        "", WEB_ADDRESS, "Where you keep these pages; the status page then links to them."
    )
    contention_profiling: bool = ignored(False, BOOLEAN, "There are no locks to contend for.")

    authentication_kubeconfig: str = upstream(
        "",
        FILE,
        "Kubeconfig for token reviews; if not given, the Pod's own account.",
        heading="Authentication",
    )
    authentication_skip_lookup: bool = upstream(
        False, BOOLEAN, "Do not look up client CAs in the cluster."
    )
    authentication_tolerate_lookup_failure: bool = upstream(
        False, BOOLEAN, "Serve although client CAs cannot be looked up."
    )
    authentication_token_webhook_cache_ttl: float = upstream(
        10.0, DURATION_OR_ZERO, "How long a token review is cached."
    )
    client_ca_file: str = upstream("", FILE, "CA of client certificates.")
    requestheader_client_ca_file: str = upstream(
        "", FILE, "CA of proxies whose request headers name the user."
    )
    requestheader_username_headers: tuple[str, ...] = upstream(
        ("x-remote-user",), NAMES, "Headers with the user's name."
    )
    requestheader_group_headers: tuple[str, ...] = upstream(
        ("x-remote-group",), NAMES, "Headers with the user's groups."
    )
    requestheader_extra_headers_prefix: tuple[str, ...] = upstream(
        ("x-remote-extra-",), NAMES, "Prefixes of headers with more about the user."
    )
    requestheader_uid_headers: tuple[str, ...] = upstream((), NAMES, "Headers with the user's UID.")
    requestheader_allowed_names: tuple[str, ...] = upstream(
        (), NAMES, "Common names that such a proxy may have; if not given, any."
    )

    authorization_kubeconfig: str = upstream(
        "",
        FILE,
        "Kubeconfig for access reviews; if not given, the Pod's own account.",
        heading="Authorization",
    )
    authorization_always_allow_paths: tuple[str, ...] = upstream(
        ("/healthz", "/readyz", "/livez"), NAMES, "Paths that anyone may read; PREFIX* for many."
    )
    authorization_webhook_cache_authorized_ttl: float = upstream(
        10.0, DURATION_OR_ZERO, "How long an 'allowed' is cached."
    )
    authorization_webhook_cache_unauthorized_ttl: float = upstream(
        10.0, DURATION_OR_ZERO, "How long a 'denied' is cached."
    )

    webhooks: tuple[str, ...] = ignored((), NAMES, NO_WEBHOOKS, heading="Webhooks")
    webhook_bind_address: str = ignored("0.0.0.0", ADDRESS, NO_WEBHOOKS)
    webhook_secure_port: int = ignored(10260, PORT, NO_WEBHOOKS)
    webhook_cert_dir: str = ignored("", DIRECTORY, NO_WEBHOOKS)
    webhook_tls_cert_file: str = ignored("", FILE, NO_WEBHOOKS)
    webhook_tls_private_key_file: str = ignored("", FILE, NO_WEBHOOKS)
    webhook_tls_sni_cert_key: tuple[CertKey, ...] = ignored((), CERT_KEYS, NO_WEBHOOKS)
    webhook_tls_cipher_suites: tuple[str, ...] = ignored((), NAMES, NO_WEBHOOKS)
    webhook_tls_curve_preferences: tuple[int, ...] = ignored((), TLS_CURVES, NO_WEBHOOKS)
    webhook_tls_min_version: str = ignored("", TLS_VERSION, NO_WEBHOOKS)
    webhook_disable_http2_serving: bool = ignored(False, BOOLEAN, NO_WEBHOOKS)

    config: str = ours(
        "", FILE, "YAML file of flags: a mapping of names to values.", heading="Processes"
    )
    feature_gates: dict[str, bool] = ignored({}, FEATURE_GATES, "No feature is behind a gate.")
    node_workers: int = ours(1, POSITIVE, "Processes among which the nodes are sharded.")
    runtime_dir: str = ours(
        "",
        DIRECTORY,
        "Directory for sockets and the lock; if not given, the user's own below /run.",
    )
    state_dir: str = ours(
        "", DIRECTORY, "Directory for state that survives a restart; else the runtime one."
    )
    shutdown_timeout: float = ours(
        20.0, DURATION, "How long a graceful stop waits for reconciles in flight."
    )
    worker_silence_limit: float = ours(
        10.0, DURATION, "A worker without a heartbeat for longer is killed and restarted."
    )
    worker_steady_time: float = ours(
        10.0, DURATION_OR_ZERO, "A worker that ran for longer is restarted without back-off."
    )
    worker_memory_limit: int = ours(
        0,
        SIZE,
        "A worker with more memory is replaced by a new one; 0 = 512 MiB and 32 KiB an object.",
    )

    v: int = upstream(
        0, NON_NEGATIVE, "Verbosity; 4 and more logs every decision.", heading="Logging"
    )
    logging_format: str = upstream("text", choice("text", "json"), "Format of log records.")
    vmodule: dict[str, int] = ignored({}, LEVELS, "There are no Go source files to match.")
    log_flush_frequency: float = ignored(5.0, DURATION, UNBUFFERED)
    log_text_split_stream: bool = ignored(False, BOOLEAN, UNBUFFERED)
    log_text_info_buffer_size: int = ignored(0, SIZE, UNBUFFERED)
    log_json_split_stream: bool = ignored(False, BOOLEAN, UNBUFFERED)
    log_json_info_buffer_size: int = ignored(0, SIZE, UNBUFFERED)


def flags() -> Iterator[Flag]:
    """Every flag, group by group."""
    group = ""
    for item in fields(Settings):
        about = dict(item.metadata)
        group = about.pop("heading", group)
        default = {} if item.default is MISSING else item.default
        yield Flag(field=item.name, group=group, default=default, **about)
