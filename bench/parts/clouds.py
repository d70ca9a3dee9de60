"""Each cloud beside upstream's controller for it: the same acts, in calls, writes and seconds.

Both sides run with default flags, each in a cluster and a cloud of its own, which answers at once.
Azure's has no workers for Nodes, so that its side begins with initialized ones. Writes are calls
that may change something. On GCE and Azure a second look, 30 s later, confirms here that a machine
is gone.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Row
from bench.plan import Measured, Plan
from tests.peers.costs import CLOUDS, RESTART
from tests.peers.costs import measure as measure_cloud
from tests.support.kube.build import REMEDY, find_binaries

WRITES = "ours: writes"
NAMES = [cloud.name for cloud in CLOUDS]


async def measure(plan: Plan) -> Measured:
    """Of the clouds that are named as sides, or of all."""
    return await asyncio.to_thread(_measure, plan)


def _measure(plan: Plan) -> Measured:
    binaries = find_binaries()
    if binaries is None:
        raise SystemExit(f"kube-apiserver and etcd are not built: {REMEDY}")
    rows: list[Row] = []
    with TemporaryDirectory(prefix="ccm-bench-") as top:
        for cloud in CLOUDS:
            for count in cloud.sizes if cloud.name in (plan.sides or NAMES) else ():
                rows += measure_cloud(cloud, binaries, Path(top), count)
    broken = [
        f"{row['cloud']}, {row['nodes']} nodes: {row[WRITES]} writes after a restart"
        for row in rows
        if row["what"] == RESTART and row[WRITES]
    ]
    return Measured(rows, broken)
