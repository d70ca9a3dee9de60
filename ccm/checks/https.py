"""Can the HTTPS endpoints be served, and their callers be authenticated and authorized."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ccm.checks.api_server import connect
from ccm.checks.context import CheckContext
from ccm.checks.finding import (
    CheckState,
    Finding,
    NotChecked,
    failed,
    from_fault,
    not_checked,
    ok,
    warning,
)
from ccm.checks.host import probe_runtime
from ccm.errors import CannotListen, ConfigurationFault
from ccm.kube.access_review import review_access
from ccm.kube.service_accounts import NAMESPACE
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from ccm.supervisor.accounts import APPLY_MANIFESTS
from ccm.supervisor.https.server import listen
from ccm.supervisor.https.tls import ServingTls

REVIEW_RULES = (
    PolicyRule("tokenreviews", ("create",), "who a caller is", "authentication.k8s.io"),
    PolicyRule(
        "subjectaccessreviews", ("create",), "what a caller may see", "authorization.k8s.io"
    ),
)
CLIENT_CA_RULE = PolicyRule(
    "configmaps",
    ("get",),
    "who signs for callers",
    namespace=NAMESPACE,
    names=("extension-apiserver-authentication",),
)


async def check_https(context: CheckContext) -> Iterable[Finding]:
    """Whether port, certificates and permissions allow serving."""
    settings = context.settings
    if not settings.secure_port:
        return [ok("nothing is served: --secure-port is 0")]
    is_ours = (await probe_runtime(context)).is_running
    found = [] if is_ours else await asyncio.to_thread(_of_port, settings)
    found += await _of_certificates(settings)
    found += await _of_callers(context)
    if all(each.state is CheckState.NOT_CHECKED for each in found):
        found.append(ok(f"port {settings.secure_port} is {'served by us' if is_ours else 'free'}"))
    return found


def _of_port(settings: Settings) -> list[Finding]:
    try:
        listen(settings).close()
    except CannotListen as error:
        message, _, remedy = str(error).partition("; ")
        return [failed(message, remedy)]
    return []


async def _of_certificates(settings: Settings) -> list[Finding]:
    """What is wrong with them; one that a start would make is not made here."""
    try:
        await ServingTls(replace(settings, cert_dir=""), lambda: "").load()
    except ConfigurationFault as fault:
        return [from_fault(fault)]
    return []


async def _of_callers(context: CheckContext) -> list[Finding]:
    """Whether we may ask the API server who callers are, and what they may see."""
    settings = context.settings
    try:
        if settings.authentication_kubeconfig or settings.authorization_kubeconfig:
            raise NotChecked("it has a kubeconfig of its own")
        reviews = await review_access(await connect(context), _needed_rules(settings))
    except NotChecked as missing:
        return [not_checked(f"whether callers can be authenticated: {missing}")]
    if denied := [review.rule.purpose for review in reviews if not review.is_allowed]:
        message = f"the API server will not tell us {', '.join(denied)}: /metrics is for nobody"
        return [warning(message, APPLY_MANIFESTS)]
    return []


def _needed_rules(settings: Settings) -> Sequence[PolicyRule]:
    is_off = settings.authentication_skip_lookup
    may_fail = is_off or settings.authentication_tolerate_lookup_failure
    return REVIEW_RULES if may_fail else (*REVIEW_RULES, CLIENT_CA_RULE)
