"""Before the first list: does the API server answer, and does it let us in?"""

import asyncio
import logging

from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.settings import Settings

log = logging.getLogger(__name__)

PATIENCE = 10.0  # seconds, as upstream waits for the API server


async def check_api_server(kube: Kube, url: str, settings: Settings) -> None:
    """Return when the API server answers; raise `ConfigurationFault` when it turns us away.

    Raises `Unreachable` when it does not answer at all for ten seconds.
    """
    field = "--kubeconfig" if settings.kubeconfig or not settings.master else "--master"
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            await kube.request("GET", "/api/v1/nodes", params={"limit": "1"}, timeout=5.0)
            return
        except KubernetesError as error:
            _turn_away(field, url, error)
            why = str(error)
        except Unreachable as error:
            why = str(error)
        if asyncio.get_running_loop().time() >= deadline:
            raise Unreachable(
                f"{field}: the API server at {url} does not answer ({why}); "
                "check the address, and that the API server is running"
            )
        await asyncio.sleep(0.5)


def _turn_away(field: str, url: str, error: KubernetesError) -> None:
    if error.status == 401:
        raise ConfigurationFault(
            field,
            f"the API server at {url} does not accept these credentials (401)",
            "renew the token or client certificate",
        ) from error
    if error.status == 403:
        raise ConfigurationFault(
            field,
            f"the API server at {url} forbids listing nodes (403: {error.message})",
            "grant this identity the rights in docs/permissions.md",
        ) from error
