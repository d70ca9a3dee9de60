"""Whether the HTTPS endpoints can be served, and their callers be recognised."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ccm.checks.check import Check
from ccm.checks.cluster.rights import REMEDY
from ccm.checks.finding import Finding, NotChecked, failed, not_checked, of_fault, ok, warning
from ccm.checks.look.rights import Answer, ask
from ccm.checks.site import Site
from ccm.errors import CannotListen, ConfigurationFault
from ccm.kube.identity import NAMESPACE
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from ccm.supervisor.https.listener import listen
from ccm.supervisor.https.tls import Tls

REVIEWS = (
    PolicyRule("tokenreviews", ("create",), "who a caller is", "authentication.k8s.io"),
    PolicyRule(
        "subjectaccessreviews", ("create",), "what a caller may see", "authorization.k8s.io"
    ),
)
AUTHORITIES = PolicyRule(
    "configmaps",
    ("get",),
    "who signs for callers",
    namespace=NAMESPACE,
    names=("extension-apiserver-authentication",),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """`unasked` says why there are no answers about the rights to recognise callers."""

    port: int
    is_served_by_us: bool
    listening: str  # why not; empty when it can be done
    fault: ConfigurationFault | None
    answers: Sequence[Answer] = ()
    unasked: str = ""


async def look(site: Site) -> Facts | None:
    """None where nothing is served."""
    settings = site.settings
    if not settings.secure_port:
        return None
    is_ours = (await site.runtime()).is_running
    listening = "" if is_ours else await asyncio.to_thread(_listening, settings)
    facts = Facts(settings.secure_port, is_ours, listening, await _fault(settings))
    if settings.authentication_kubeconfig or settings.authorization_kubeconfig:
        return replace(facts, unasked="it has a kubeconfig of its own")
    try:
        return replace(facts, answers=await ask(await site.kube(), _needed(settings)))
    except NotChecked as missing:
        return replace(facts, unasked=str(missing))


def _needed(settings: Settings) -> Sequence[PolicyRule]:
    is_off = settings.authentication_skip_lookup
    may_fail = is_off or settings.authentication_tolerate_lookup_failure
    return REVIEWS if may_fail else (*REVIEWS, AUTHORITIES)


def _listening(settings: Settings) -> str:
    try:
        listen(settings).close()
    except CannotListen as error:
        return str(error)
    return ""


async def _fault(settings: Settings) -> ConfigurationFault | None:
    """What is wrong with the certificates; one that is to be made is not made here."""
    try:
        await Tls(replace(settings, cert_dir=""), lambda: "").load()
    except ConfigurationFault as fault:
        return fault
    return None


def judge(facts: Facts | None) -> Iterator[Finding]:
    if facts is None:
        yield ok("nothing is served: --secure-port is 0")
        return
    if facts.listening:
        seen, _, remedy = facts.listening.partition("; ")
        yield failed(seen, remedy)
    if facts.fault:
        yield of_fault(facts.fault)
    if facts.unasked:
        yield not_checked(f"whether callers can be recognised: {facts.unasked}")
    denied = [answer for answer in facts.answers if not answer.is_allowed]
    if denied:
        what = ", ".join(answer.grain.right.purpose for answer in denied)
        yield warning(f"the API server will not tell us {what}: /metrics is for nobody", REMEDY)
    if not (facts.listening or facts.fault or denied):
        yield ok(f"port {facts.port} is {'served by us' if facts.is_served_by_us else 'free'}")


CHECK = Check("https", look, judge)
