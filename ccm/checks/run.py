"""All checks at once: each with its own deadline, and none in another one's way."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ccm.checks import (
    api_server,
    cloud,
    cloud_budget,
    flags,
    host,
    https,
    leaders,
    nodes,
    permissions,
    services,
    serving_certificates,
)
from ccm.checks.context import Check, CheckContext
from ccm.checks.finding import (
    CheckState,
    Finding,
    NotChecked,
    failed,
    from_fault,
    not_checked,
    worst,
)
from ccm.durations import format_duration
from ccm.errors import (
    CloudError,
    ConfigurationFault,
    ConfigurationFaults,
    KubernetesError,
    Unreachable,
)
from ccm.model.objects import Json
from ccm.redaction import bounded_text

log = logging.getLogger(__name__)

TEXT_LIMIT = 4000  # characters of a message or a remedy

CHECKS = (
    Check("flags", flags.check_flags),
    Check("directories", host.check_directories),
    Check("open-files", host.check_open_files),
    Check("https", https.check_https),
    Check("api-server", api_server.check_api_server),
    Check("api-resources", api_server.check_resources),
    Check("clock", api_server.check_clock),
    Check("permissions", permissions.check_permissions),
    Check("service-accounts", permissions.check_accounts),
    Check("lease", leaders.check_lease),
    Check("other-controllers", leaders.check_other_controllers),
    Check("cloud-provider", cloud.check_provider, timeout=15.0),
    Check("cloud-reads", cloud.check_reads, timeout=30.0),
    Check("cloud-budget", cloud_budget.check_budget, timeout=30.0),
    Check("provider-ids", nodes.check_provider_ids),
    Check("kubelets", nodes.check_kubelets),
    Check("uninitialized-nodes", nodes.check_initialization),
    Check("machines", nodes.check_machines),
    Check("serving-certificates", serving_certificates.check_serving_certificates),
    Check("pod-cidrs", nodes.check_pod_cidrs),
    Check("services", services.check_services),
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
    findings, states = [_bounded(it) for it in await _findings(check, context)], list(CheckState)
    findings.sort(key=lambda finding: states.index(finding.state), reverse=True)
    return CheckResult(check.name, time.monotonic() - started, tuple(findings))


def _bounded(finding: Finding) -> Finding:
    """The same with texts that a person can read: a Node may have a provider ID of a megabyte."""
    message, remedy = (bounded_text(it, TEXT_LIMIT) for it in (finding.message, finding.remedy))
    return Finding(finding.state, message, remedy)


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
    except ConfigurationFault as fault:
        return [from_fault(fault)]
    except ConfigurationFaults as faults:
        return [from_fault(fault) for fault in faults.faults]
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
                "findings": [asdict(finding) for finding in result.findings],
            }
            for result in results
        ],
    }
