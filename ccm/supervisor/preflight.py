"""Before the first list: whether the API server answers, and accepts our credentials."""

import asyncio
import logging

from ccm.errors import AccessRefused, ConfigurationFault, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.settings import Settings

log = logging.getLogger(__name__)

API_SERVER_TIMEOUT = 10.0  # seconds, as upstream waits for the API server


async def check_api_server(
    kube: Kube, url: str, settings: Settings, timeout: float = API_SERVER_TIMEOUT
) -> None:
    """Return when the API server answers; raise `AccessRefused` when it denies us access.

    An API server that starts denies everything until it has read all roles and accounts: denials
    count when it was ready before, or after `timeout` seconds. Raises `Unreachable` when it does
    not answer until then.
    """
    field = address_flag(settings)
    deadline = asyncio.get_running_loop().time() + timeout
    while True:
        readiness = await _readiness(kube)
        is_late = asyncio.get_running_loop().time() >= deadline
        try:
            await kube.request("GET", "/api/v1/nodes", params={"limit": "1"}, timeout=5.0)
            if is_late or readiness < 500:
                return
            why = f"it is not ready ({readiness})"
        except KubernetesError as error:
            if (is_late or readiness == 200) and (fault := denied_fault(field, url, error)):
                raise AccessRefused(str(fault)) from error
            why = str(error)
        except Unreachable as error:
            why = str(error)
        if is_late:
            raise Unreachable(str(unreachable_fault(field, url, why)))
        await asyncio.sleep(0.5)


async def _readiness(kube: Kube) -> int:
    """The API server's answer to whether it is ready; 503 when there is none."""
    try:
        async with kube.stream("/readyz", {}, begins_within=5.0):
            return 200
    except KubernetesError as error:
        return error.status
    except Unreachable:
        return 503


def address_flag(settings: Settings) -> str:
    """The flag that says where the API server is."""
    return "--kubeconfig" if settings.kubeconfig or not settings.master else "--master"


def unreachable_fault(field: str, url: str, why: str) -> ConfigurationFault:
    """The fault of a server that does not answer; the address is not always to blame."""
    return ConfigurationFault(
        field,
        f"the API server at {url} does not answer ({why})",
        "check the address, and that the API server is running",
    )


def denied_fault(field: str, url: str, error: KubernetesError) -> ConfigurationFault | None:
    """The fault of a 401 or 403; None for any other answer."""
    if error.status == 401:
        return ConfigurationFault(
            field,
            f"the API server at {url} does not accept these credentials (401)",
            "renew the token or client certificate",
        )
    if error.status == 403:
        return ConfigurationFault(
            field,
            f"the API server at {url} forbids listing nodes (403: {error.message})",
            "grant this identity the rights in docs/permissions.md",
        )
    return None
