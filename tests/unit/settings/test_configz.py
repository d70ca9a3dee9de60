"""What `/configz` and `/flagz` show."""

from typing import Any

import orjson
import pytest

from ccm.controllers import is_enabled
from ccm.settings import Settings, flags
from ccm.settings.configz import configz, flagz
from ccm.settings.leader_migration import LeaderMigration
from tests.support.rows import row
from tests.unit.settings.writing import settings

GROUP = "cloudcontrollermanager.config.k8s.io"

UPSTREAMS: dict[str, Any] = {
    "kind": "CloudControllerManagerConfiguration",
    "apiVersion": f"{GROUP}/v1alpha1",
    "Generic": {
        "Port": 10258,
        "Address": "0.0.0.0",
        "MinResyncPeriod": "12h0m0s",
        "ClientConnection": {
            "kubeconfig": "",
            "acceptContentTypes": "",
            "contentType": "application/vnd.kubernetes.protobuf",
            "qps": 20.0,
            "burst": 30,
        },
        "ControllerStartInterval": "0s",
        "LeaderElection": {
            "leaderElect": True,
            "leaseDuration": "15s",
            "renewDeadline": "10s",
            "retryPeriod": "2s",
            "resourceLock": "leases",
            "resourceName": "cloud-controller-manager",
            "resourceNamespace": "kube-system",
        },
        "Controllers": ["*"],
        "Debugging": {"enableProfiling": True, "enableContentionProfiling": False},
        "LeaderMigrationEnabled": False,
        "LeaderMigration": {"leaderName": "", "resourceLock": "", "controllerLeaders": None},
    },
    "KubeCloudShared": {
        "CloudProvider": {"Name": "simulated", "CloudConfigFile": ""},
        "ExternalCloudVolumePlugin": "",
        "UseServiceAccountCredentials": False,
        "AllowUntaggedCloud": False,
        "RouteReconciliationPeriod": "10s",
        "ClusterName": "kubernetes",
        "ClusterCIDR": "",
        "AllocateNodeCIDRs": False,
        "CIDRAllocatorType": "RangeAllocator",
        "ConfigureCloudRoutes": True,
        "NodeSyncPeriod": "0s",
    },
    "NodeController": {"ConcurrentNodeSyncs": 1, "ConcurrentNodeStatusUpdates": 1},
    "NodeLifecycleController": {"NodeMonitorPeriod": "5s", "ConcurrentNodeLifecycleSyncs": 1},
    "ServiceController": {"ConcurrentServiceSyncs": 1},
    "NodeStatusUpdateFrequency": "5m0s",
    "Webhook": {"Webhooks": None},
}
"""What upstream's program shows when it is started without flags, but for its port."""

UPSTREAM_DEFAULTS = (
    "--kube-api-qps=20",
    "--kube-api-burst=30",
    "--route-reconciliation-period=10s",
    "--concurrent-node-syncs=1",
    "--concurrent-service-syncs=1",
)


def shown(*words: str) -> dict[str, Any]:
    return dict(configz(settings(*words))[GROUP])


def test_the_configuration_is_upstreams_object() -> None:
    assert shown(*UPSTREAM_DEFAULTS) == UPSTREAMS


@row("OP11")
def test_the_default_configuration_survives_json() -> None:
    made = configz(Settings())
    assert orjson.loads(orjson.dumps(made)) == made


@pytest.mark.parametrize(
    ("words", "syncs", "updates"),
    [
        pytest.param(["--concurrent-node-syncs=1"], 1, 1, id="OP4"),
        pytest.param(["--concurrent-node-syncs=5", "--concurrent-node-status-updates=2"], 5, 2),
        pytest.param(["--kube-api-in-flight=7"], 7, 7),
    ],
)
def test_status_updates_are_as_wide_as_node_syncs(
    words: list[str], syncs: int, updates: int
) -> None:
    assert shown(*words)["NodeController"] == {
        "ConcurrentNodeSyncs": syncs,
        "ConcurrentNodeStatusUpdates": updates,
    }


def test_a_leader_migration_is_shown() -> None:
    generic = configz(Settings(), LeaderMigration("second", (("a", "b"),)))[GROUP]["Generic"]
    assert generic["LeaderMigrationEnabled"] is True
    assert generic["LeaderMigration"] == {
        "leaderName": "second",
        "resourceLock": "leases",
        "controllerLeaders": [{"name": "a", "component": "b"}],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [("100ms", "100ms"), ("1h1m1.5s", "1h1m1.5s"), ("90m", "1h30m0s"), ("61s", "1m1s")],
)
def test_durations_are_written_as_in_go(text: str, expected: str) -> None:
    assert shown(f"--min-resync-period={text}")["Generic"]["MinResyncPeriod"] == expected


def test_every_flag_is_a_line() -> None:
    lines = flagz(settings("--controllers=*,-route", "--cloud-rate=read=2")).splitlines()
    assert [line.partition("=")[0] for line in lines] == sorted(flag.name for flag in flags())
    assert "controllers=*,-node-route-controller" in lines
    assert "cloud-rate=read=2" in lines
    assert "leader-elect=true" in lines


@row("OP5")
def test_without_webhooks_none_is_enabled_although_they_have_a_port() -> None:
    assert settings().webhook_secure_port == 10260
    assert shown()["Webhook"] == {"Webhooks": None}


@pytest.mark.parametrize(
    ("listed", "enabled"),
    [
        pytest.param(["a", "b"], ["a", "b"], id="OP9-both"),
        pytest.param(["a"], ["a"], id="OP9-one"),
        pytest.param(["-b"], [], id="OP9-none"),
    ],
)
def test_a_list_of_webhooks_switches_each_of_them(listed: list[str], enabled: list[str]) -> None:
    assert [name for name in ("a", "b") if is_enabled(name, listed)] == enabled
