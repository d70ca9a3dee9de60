"""Before the first list: whether the API server answers, and accepts our credentials."""

import asyncio
import logging

from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.settings import Settings

log = logging.getLogger(__name__)

API_SERVER_TIMEOUT = 10.0  # seconds, as upstream waits for the API server


async def check_api_server(kube: Kube, url: str, settings: Settings) -> None:
    """Return when the API server answers; raise `ConfigurationFault` when it denies us access.

    Raises `Unreachable` when it does not answer within `API_SERVER_TIMEOUT`.
    """
    field = address_flag(settings)
    deadline = asyncio.get_running_loop().time() + API_SERVER_TIMEOUT
    while True:
        try:
            await kube.request("GET", "/api/v1/nodes", params={"limit": "1"}, timeout=5.0)
            return
        except KubernetesError as error:
            if fault := denied_fault(field, url, error):
                raise fault from error
            why = str(error)
        except Unreachable as error:
            why = str(error)
        if asyncio.get_running_loop().time() >= deadline:
            raise Unreachable(str(unreachable_fault(field, url, why)))
        await asyncio.sleep(0.5)


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
