"""Every check, in the order of the report."""

from typing import Any

from ccm.checks.check import Check
from ccm.checks.cloud import budget, provider, reads
from ccm.checks.cluster import (
    accounts,
    api_kinds,
    api_server,
    clock,
    lease,
    other_controllers,
    rights,
)
from ccm.checks.host import directories, flags, https, open_files
from ccm.checks.nodes import (
    kubelets,
    machines,
    pod_networks,
    provider_ids,
    services,
    waiting,
)

CHECKS: tuple[Check[Any], ...] = (
    flags.CHECK,
    directories.CHECK,
    open_files.CHECK,
    https.CHECK,
    api_server.CHECK,
    api_kinds.CHECK,
    clock.CHECK,
    rights.CHECK,
    accounts.CHECK,
    lease.CHECK,
    other_controllers.CHECK,
    provider.CHECK,
    reads.CHECK,
    budget.CHECK,
    provider_ids.CHECK,
    kubelets.CHECK,
    waiting.CHECK,
    machines.CHECK,
    pod_networks.CHECK,
    services.CHECK,
)
