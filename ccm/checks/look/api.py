"""First contact with the API server, and reading lists from it."""

import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from ccm.checks.finding import NotChecked
from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube import config
from ccm.kube.access import Access
from ccm.kube.client import Kube
from ccm.kube.watch import PAGE
from ccm.model.objects import Json, mapping, objects, text
from ccm.settings import Settings

PATIENCE = 5.0  # seconds for one answer
IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Reach:
    """What became of the first request; `ahead` are seconds that the server's clock is before ours.

    The date of an answer has whole seconds, so `ahead` is right to half a second at best.
    """

    url: str
    version: Json = field(default_factory=dict)
    ahead: float | None = None
    error: Exception | None = None


async def connect(settings: Settings) -> tuple[Kube, str]:
    """A client as `start` would have it, and the address; raises `ConfigurationFault`."""
    access = await config.load(config.Source(settings.kubeconfig, settings.master))
    return _client(access), access.server.url


def _client(access: Access) -> Kube:
    try:
        return Kube(access, "ccm-supervisor/check", IN_FLIGHT)
    except (OSError, ValueError) as error:  # what ssl says of files that are none of its own
        raise ConfigurationFault(
            "--kubeconfig",
            f"its certificates are not usable: {error}",
            "give a CA, and a certificate with its key, all PEM, that this user may read",
        ) from error


async def contact(kube: Kube, url: str) -> Reach:
    """Ask for the version, which everybody may."""
    sent = time.time()
    try:
        version = await kube.request("GET", "/version", timeout=PATIENCE)
    except (KubernetesError, Unreachable) as error:
        return Reach(url, error=error)
    return Reach(url, version, _ahead(kube.server_date, (sent + time.time()) / 2))


def _ahead(date: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - now
    except ValueError:
        return None


async def listed(kube: Kube, path: str, what: str) -> list[Json]:
    """All objects under `path`; raises `NotChecked` when we may not list them."""
    items: list[Json] = []
    params = {"limit": str(PAGE)}
    try:
        while True:
            page = await kube.request("GET", path, params=params, timeout=PATIENCE)
            items += objects(page.get("items"))
            token = text(mapping(page.get("metadata")).get("continue"))
            if not token:
                return items
            params["continue"] = token
    except KubernetesError as error:
        if error.status != 403:
            raise
        raise NotChecked(f"this identity may not list {what}") from error
