"""Flags about what the controllers do."""

from dataclasses import dataclass

from ccm.settings.declaration import (
    AMOUNT,
    BOOLEAN,
    CONTROLLERS,
    COUNT,
    LIMIT,
    NAMES,
    PAUSE,
    PERIOD,
    SHARE,
    WIDTH,
    ignored,
    ours,
    upstream,
)


@dataclass(frozen=True)
class ControllerFlags:
    controllers: tuple[str, ...] = upstream(
        ("*",), CONTROLLERS, "Controllers to run; -NAME turns one off."
    )
    configure_cloud_routes: bool = upstream(
        True, BOOLEAN, "Program the cloud's routes to the nodes' pod networks."
    )
    route_reconciliation_period: float = upstream(
        600.0, PERIOD, "Time between two comparisons of all routes.", theirs="10s"
    )
    concurrent_service_syncs: int = upstream(
        10, COUNT, "Services worked on at the same time.", theirs="1"
    )
    controller_start_interval: float = ignored(
        0.0, PAUSE, "Controllers are processes that start at the same time."
    )
    load_balancer_classes: tuple[str, ...] = ours(
        (), NAMES, "Values of spec.loadBalancerClass that are ours, too."
    )
    legacy_zone_labels: bool = ours(
        False, BOOLEAN, "Label volumes with failure-domain.beta.kubernetes.io, too."
    )


@dataclass(frozen=True)
class NodeFlags:
    concurrent_node_syncs: int = upstream(
        0, WIDTH, "Nodes written at the same time; if not given, --kube-api-in-flight.", theirs="1"
    )
    concurrent_node_status_updates: int = ignored(
        0, AMOUNT, "Refreshed nodes share the width of --concurrent-node-syncs."
    )
    node_status_update_frequency: float = upstream(
        300.0, PERIOD, "Time in which every node's addresses and labels are compared once."
    )
    node_monitor_period: float = upstream(
        5.0, PERIOD, "Time between two questions about nodes that are not Ready."
    )
    node_sync_period: float = ignored(
        0.0, PAUSE, "Node changes are watched.", deprecated="leave it out"
    )
    prefer_beta_labels: bool = ours(
        False, BOOLEAN, "Where a node's GA and beta labels differ, the beta one is right."
    )
    node_deletion_limit: str = ours(
        "10,10%",
        LIMIT,
        "Nodes deleted per --node-deletion-window at most: the larger of a number and a share.",
    )
    node_deletion_window: float = ours(
        600.0, PERIOD, "Time over which --node-deletion-limit counts."
    )
    node_vanish_share: float = ours(
        0.3, SHARE, "When more than this share of nodes vanish at once, none is deleted."
    )
