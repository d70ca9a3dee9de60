"""Can the HTTPS endpoints be served, and their callers be authenticated and authorized."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

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
from ccm.checks.host import probe_runtime, unusable_directory
from ccm.errors import CannotListen, ConfigurationFault
from ccm.kube.access_review import review_access
from ccm.kube.service_accounts import NAMESPACE
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from ccm.supervisor.accounts import APPLY_MANIFESTS
from ccm.supervisor.https.client_ca import read_files
from ccm.supervisor.https.server import PURPOSES, load_review_access
from ccm.supervisor.https.tls import ServingTls, pair_in
from ccm.supervisor.listening import listen

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
    found += [finding async for finding in _of_files(settings)]
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


async def _of_files(settings: Settings) -> AsyncIterator[Finding]:
    """What is wrong with certificates and kubeconfigs; a pair that a start makes is not made."""
    pair = pair_in(settings.cert_dir)
    if settings.cert_dir and not (pair.certificate.exists() or pair.key.exists()):
        for finding in unusable_directory("--cert-dir", Path(settings.cert_dir).absolute()):
            yield finding
        settings = replace(settings, cert_dir="")
    own = [purpose for purpose in PURPOSES if getattr(settings, f"{purpose}_kubeconfig")]
    loads: list[Callable[[], Awaitable[object]]] = [
        ServingTls(settings, str).load,
        partial(read_files, settings),
        *(partial(load_review_access, settings, purpose) for purpose in own),
    ]
    for load in loads:
        try:
            await load()
        except ConfigurationFault as fault:
            yield from_fault(fault)


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
        message = f"the API server does not report {', '.join(denied)}: /metrics is for no one"
        return [warning(message, APPLY_MANIFESTS)]
    return []


def _needed_rules(settings: Settings) -> Sequence[PolicyRule]:
    is_off = settings.authentication_skip_lookup
    may_fail = is_off or settings.authentication_tolerate_lookup_failure
    return REVIEW_RULES if may_fail else (*REVIEW_RULES, CLIENT_CA_RULE)
