"""Whether processes may have as many files open as their connections need.

The limit of this shell; a unit of systemd has its own (`LimitNOFILE=`).
"""

import resource
from collections.abc import Iterator
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, failed, ok
from ccm.checks.site import Site
from ccm.supervisor.https.listener import MOST
from ccm.supervisor.shards import wanted_workers

BASE = 64  # of one process: interpreter, event loop, bus, log, connections to the cloud
PER_WORKER = 6  # in the supervisor: sentinel, pipes, its connection on the bus


@dataclass(frozen=True, slots=True)
class Facts:
    limit: int
    in_flight: int
    workers: int
    serves: bool


async def look(site: Site) -> Facts:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    settings = site.settings
    workers = len(wanted_workers(settings))
    return Facts(limit, settings.kube_api_in_flight, workers, bool(settings.secure_port))


def judge(facts: Facts) -> Iterator[Finding]:
    need = BASE + facts.in_flight + PER_WORKER * facts.workers + MOST * facts.serves
    seen = f"{facts.limit} files may be open, and about {need} may be needed"
    if facts.limit not in (resource.RLIM_INFINITY, -1) and facts.limit < need:
        yield failed(seen, f"raise the limit: ulimit -n {max(1024, need)}, or LimitNOFILE=")
    else:
        yield ok(seen)


CHECK = Check("open-files", look, judge)
