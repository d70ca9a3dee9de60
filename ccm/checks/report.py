"""The results as JSON; its shape is documented in docs/check.md and only ever grows."""

from collections.abc import Sequence

from ccm.checks.finding import State, worst
from ccm.checks.run import Result
from ccm.model.objects import Json


def report(results: Sequence[Result], version: str, provider: str) -> Json:
    states = [result.state for result in results]
    return {
        "version": version,
        "provider": provider,
        "state": worst(states),
        "counts": {str(state): states.count(state) for state in State},
        "checks": [_of(result) for result in results],
    }


def _of(result: Result) -> Json:
    return {
        "name": result.name,
        "state": result.state,
        "seconds": round(result.seconds, 3),
        "findings": [
            {"state": finding.state, "seen": finding.seen, "remedy": finding.remedy}
            for finding in result.findings
        ],
    }
