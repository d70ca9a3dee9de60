"""All checks at once: each with its own deadline, and none in another one's way."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ccm.checks import (
    api_server,
    cloud,
    cloud_budget,
    flags,
    host,
    https,
    leases,
    nodes,
    other_controllers,
    permissions,
    pod_cidrs,
    services,
)
from ccm.checks.context import Check, CheckContext
from ccm.checks.finding import CheckState, Finding, NotChecked, failed, not_checked, worst
from ccm.durations import format_duration
from ccm.errors import CloudError, KubernetesError, Unreachable
from ccm.model.objects import Json

log = logging.getLogger(__name__)

CHECKS: tuple[Check, ...] = (
    flags.CHECK,
    *host.CHECKS,
    https.CHECK,
    *api_server.CHECKS,
    *permissions.CHECKS,
    leases.CHECK,
    other_controllers.CHECK,
    *cloud.CHECKS,
    cloud_budget.CHECK,
    *nodes.CHECKS,
    pod_cidrs.CHECK,
    services.CHECK,
)
"""In the order of the report."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found, the worst first."""

    name: str
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def state(self) -> CheckState:
        return worst(finding.state for finding in self.findings)


async def run_checks(checks: Sequence[Check], context: CheckContext) -> list[CheckResult]:
    """One result for each check, in their order; closes the context."""
    try:
        return await asyncio.gather(*(_run(check, context) for check in checks))
    finally:
        await context.close()


async def _run(check: Check, context: CheckContext) -> CheckResult:
    started = time.monotonic()
    findings, states = await _findings(check, context), list(CheckState)
    findings.sort(key=lambda finding: states.index(finding.state), reverse=True)
    return CheckResult(check.name, time.monotonic() - started, tuple(findings))


async def _findings(check: Check, context: CheckContext) -> list[Finding]:
    try:
        async with asyncio.timeout(check.timeout):
            return list(await check.run(context))
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


def to_json(results: Sequence[CheckResult], version: str, provider: str) -> Json:
    """The report; its shape is documented in docs/check.md and only ever grows."""
    states = [result.state for result in results]
    return {
        "version": version,
        "provider": provider,
        "state": worst(states),
        "counts": {str(state): states.count(state) for state in CheckState},
        "checks": [
            {
                "name": result.name,
                "state": result.state,
                "seconds": round(result.seconds, 3),
                "findings": [
                    {"state": each.state, "message": each.message, "remedy": each.remedy}
                    for each in result.findings
                ],
            }
            for result in results
        ],
    }
