"""Whether the API server can be reached, is the one we trust, and knows us."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, failed, of_fault, ok
from ccm.checks.look.api import Reach
from ccm.checks.site import Site
from ccm.errors import ConfigurationFault, KubernetesError
from ccm.supervisor.preflight import no_answer, said_by, turned_away


@dataclass(frozen=True, slots=True)
class Facts:
    reach: Reach
    field: str  # the flag that says where the API server is


async def look(site: Site) -> Facts:
    return Facts(await site.reach(), said_by(site.settings))


def judge(facts: Facts) -> Iterator[Finding]:
    url, error = facts.reach.url, facts.reach.error
    match error:
        case None:
            yield ok(f"{url} answers")
        case ConfigurationFault():
            yield of_fault(error)
        case KubernetesError():
            fault = turned_away(facts.field, url, error)
            yield (
                of_fault(fault)
                if fault
                else failed(
                    f"{facts.field}: the API server at {url} answers {error}",
                    "see its log, and that of whatever stands before it",
                )
            )
        case _:
            yield _no_answer(facts, error)


def _no_answer(facts: Facts, error: Exception) -> Finding:
    url = facts.reach.url
    match error.__cause__:
        case ssl.SSLError() as tls:
            return failed(
                f"{facts.field}: no trusted connection to {url} ({_plain(tls)})",
                "give the CA of this API server, and an address that its certificate names",
            )
        case socket.gaierror():
            return failed(
                f"{facts.field}: the name in {url} is not known here",
                "correct it, or the DNS of this host; the cluster's own may not be there yet",
            )
    return of_fault(no_answer(facts.field, url, str(error)))


def _plain(error: ssl.SSLError) -> str:
    return " ".join(str(error).split())


CHECK = Check("api-server", look, judge)
