"""Whether this machine's clock agrees with the API server's.

Leadership does not depend on it; tokens, certificates and signed cloud calls do.
"""

from collections.abc import Iterator

from ccm.checks.check import Check
from ccm.checks.finding import Finding, NotChecked, failed, ok, warning
from ccm.checks.site import Site
from ccm.durations import format_duration

NOTICED = 10.0  # seconds beyond which new tokens may count as not yet valid
TOO_FAR = 240.0  # clouds take signatures that are up to five minutes old
REMEDY = "let a time service (chrony, systemd-timesyncd) set the clock here and there"


async def look(site: Site) -> float | None:
    await site.kube()
    return (await site.reach()).ahead


def judge(ahead: float | None) -> Iterator[Finding]:
    if ahead is None:
        raise NotChecked("the API server does not say what time it is")
    size = format_duration(round(abs(ahead)))
    seen = f"this clock is {size} {'behind' if ahead > 0 else 'ahead of'} the API server's"
    if abs(ahead) > TOO_FAR:
        yield failed(seen, REMEDY)
    elif abs(ahead) > NOTICED:
        yield warning(seen, REMEDY)
    else:
        yield ok("this clock and the API server's agree")


CHECK = Check("clock", look, judge)
