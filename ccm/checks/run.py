"""All checks at once: each with its own deadline, and none in another one's way."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ccm.checks.check import Check
from ccm.checks.finding import (
    Finding,
    NotChecked,
    State,
    failed,
    not_checked,
    worst,
)
from ccm.checks.site import Site
from ccm.durations import format_duration
from ccm.errors import CloudError, KubernetesError, Unreachable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found, the worst first."""

    name: str
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def state(self) -> State:
        return worst(finding.state for finding in self.findings)


async def run(checks: Sequence[Check[Any]], site: Site) -> list[Result]:
    """One result for each check, in their order."""
    try:
        return await asyncio.gather(*(_result(check, site) for check in checks))
    finally:
        await site.close()


async def _result(check: Check[Any], site: Site) -> Result:
    begun = time.monotonic()
    findings = await _findings(check, site)
    ranks = list(State)
    by_rank = sorted(findings, key=lambda finding: ranks.index(finding.state), reverse=True)
    return Result(check.name, time.monotonic() - begun, tuple(by_rank))


async def _findings(check: Check[Any], site: Site) -> list[Finding]:
    try:
        async with asyncio.timeout(check.timeout):
            facts = await check.look(site)
        return list(check.judge(facts))
    except NotChecked as missing:
        return [not_checked(str(missing))]
    except TimeoutError:
        limit = format_duration(check.timeout)
        return [failed(f"no result within {limit}", "see why what it asks is so slow")]
    except (KubernetesError, Unreachable) as error:
        return [failed(str(error), "see the log of the API server, and what stands before it")]
    except CloudError as error:
        return [failed(str(error), "see whether the cloud works")]
    except Exception as bug:  # around one callback: the other checks go on
        log.debug("check failed", exc_info=True)
        return [failed(f"the check itself failed: {bug!r}", "this is a bug; please report it")]
