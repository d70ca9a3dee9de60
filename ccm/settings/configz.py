"""What `/configz` and `/flagz` show of the settings."""

import re

from ccm.model.objects import Json
from ccm.settings.flags import Settings, flags
from ccm.settings.leader_migration import LeaderMigration

_GROUP = "cloudcontrollermanager.config.k8s.io"


def configz(settings: Settings, migration: LeaderMigration | None = None) -> Json:
    """The object of `/configz`, as upstream's CloudControllerManagerConfiguration."""
    syncs = settings.concurrent_node_syncs or settings.kube_api_in_flight
    return {
        _GROUP: {
            "kind": "CloudControllerManagerConfiguration",
            "apiVersion": f"{_GROUP}/v1alpha1",
            "Generic": _generic(settings, migration),
            "KubeCloudShared": _kube_cloud_shared(settings),
            "NodeController": {
                "ConcurrentNodeSyncs": syncs,
                "ConcurrentNodeStatusUpdates": settings.concurrent_node_status_updates or syncs,
            },
            "NodeLifecycleController": {
                "NodeMonitorPeriod": _go_duration(settings.node_monitor_period),
                "ConcurrentNodeLifecycleSyncs": settings.concurrent_node_lifecycle_syncs,
            },
            "ServiceController": {"ConcurrentServiceSyncs": settings.concurrent_service_syncs},
            "NodeStatusUpdateFrequency": _go_duration(settings.node_status_update_frequency),
            "Webhook": {"Webhooks": list(settings.webhooks) or None},
        }
    }


def _generic(settings: Settings, migration: LeaderMigration | None) -> Json:
    return {
        "Port": settings.secure_port,
        "Address": settings.bind_address,
        "MinResyncPeriod": _go_duration(settings.min_resync_period),
        "ClientConnection": {
            "kubeconfig": settings.kubeconfig,
            "acceptContentTypes": "",
            "contentType": settings.kube_api_content_type,
            "qps": settings.kube_api_qps,
            "burst": settings.kube_api_burst,
        },
        "ControllerStartInterval": _go_duration(settings.controller_start_interval),
        "LeaderElection": {
            "leaderElect": settings.leader_elect,
            "leaseDuration": _go_duration(settings.leader_elect_lease_duration),
            "renewDeadline": _go_duration(settings.leader_elect_renew_deadline),
            "retryPeriod": _go_duration(settings.leader_elect_retry_period),
            "resourceLock": settings.leader_elect_resource_lock,
            "resourceName": settings.leader_elect_resource_name,
            "resourceNamespace": settings.leader_elect_resource_namespace,
        },
        "Controllers": list(settings.controllers),
        "Debugging": {
            "enableProfiling": settings.profiling,
            "enableContentionProfiling": settings.contention_profiling,
        },
        "LeaderMigrationEnabled": migration is not None,
        "LeaderMigration": _migration(migration),
    }


def _migration(migration: LeaderMigration | None) -> Json:
    if migration is None:
        return {"leaderName": "", "resourceLock": "", "controllerLeaders": None}
    leaders = [{"name": name, "component": who} for name, who in migration.leaders]
    return {
        "leaderName": migration.lease_name,
        "resourceLock": "leases",
        "controllerLeaders": leaders,
    }


def _kube_cloud_shared(settings: Settings) -> Json:
    return {
        "CloudProvider": {
            "Name": settings.cloud_provider,
            "CloudConfigFile": settings.cloud_config,
        },
        "ExternalCloudVolumePlugin": settings.external_cloud_volume_plugin,
        "UseServiceAccountCredentials": settings.use_service_account_credentials,
        "AllowUntaggedCloud": settings.allow_untagged_cloud,
        "RouteReconciliationPeriod": _go_duration(settings.route_reconciliation_period),
        "ClusterName": settings.cluster_name,
        "ClusterCIDR": ",".join(settings.cluster_cidr),
        "AllocateNodeCIDRs": settings.allocate_node_cidrs,
        "CIDRAllocatorType": settings.cidr_allocator_type,
        "ConfigureCloudRoutes": settings.configure_cloud_routes,
        "NodeSyncPeriod": _go_duration(settings.node_sync_period),
    }


def _go_duration(seconds: float) -> str:
    """A duration as Go writes it: `12h0m0s`, `1m1.5s`, `100ms`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    hours, rest = divmod(round(seconds, 6), 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{hours:g}h"] * bool(hours) + [f"{minutes:g}m"] * bool(hours or minutes)
    return "".join(parts) + f"{round(rest, 6):g}s"


def flagz(settings: Settings) -> str:
    """The text of `/flagz`: `name=value` lines, sorted; without credentials in addresses."""
    lines = (
        f"{flag.name}={flag.syntax.format(getattr(settings, flag.field))}\n"
        for flag in sorted(flags(), key=lambda flag: flag.name)
    )
    return re.sub(r"://[^/@\s]*@", "://REDACTED@", "".join(lines))
